// Signing in: credentials are kept in the browser's storage and are never part of a URL.

import { byId } from "./dom.js";

const KEPT = "retinue.credentials";
const CODE = /^[a-hj-np-z2-9]{4}-?[a-hj-np-z2-9]{4}$/i;

/** The stored credentials; empty if there are none. */
export function keptCredentials() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? localStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};
  }
}

export function keepCredentials(credentials, stay) {
  forgetCredentials();
  (stay ? localStorage : sessionStorage).setItem(KEPT, JSON.stringify(credentials));
}

export function forgetCredentials() {
  sessionStorage.removeItem(KEPT);
  localStorage.removeItem(KEPT);
}

/** The pairing code in the address that a QR code contains. It is removed from the address, and can be used once. */
export function takeCode() {
  const code = new URLSearchParams(location.hash.slice(1)).get("pair");
  if (code !== null) history.replaceState(null, "", location.pathname + location.search);
  return code !== null && CODE.test(code) ? code : null;
}

/** The kinds of credentials that a typed secret may be, the most likely first. */
export function readSecret(typed) {
  const secret = typed.trim();
  if (secret.startsWith("rtn_")) return [{ token: secret }];
  const plain = { token: secret, password: secret };
  if (!CODE.test(secret)) return [plain];
  return secret.includes("-") ? [{ pairingCode: secret }] : [{ pairingCode: secret }, plain];
}

/** The form. `signIn(attempts, stay)` gets the credentials or a pairing request; `stop()` withdraws the request. */
export class SignIn {
  #root = byId("sign-in-page");
  #form = byId("sign-in");
  #asking = byId("asking");
  #secret = byId("secret");
  #problem = byId("sign-in-problem");

  constructor(signIn, stop) {
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      const attempts = readSecret(this.#secret.value);
      this.#secret.value = "";
      this.#showProblem("");
      signIn(attempts, byId("stay").checked);
    });
    byId("ask").addEventListener("click", () => {
      this.#showProblem("");
      signIn([{ requestPairing: true }], byId("stay").checked);
    });
    byId("asking-stop").addEventListener("click", stop);
  }

  /** The gateway accepted the pairing request; the person compares the code. */
  wait(code) {
    this.#form.hidden = true;
    this.#asking.hidden = false;
    byId("asking-code").textContent = code;
    byId("asking-command").textContent = `retinue gateway devices approve ${code}`;
  }

  open(problem) {
    this.#root.hidden = false;
    this.#form.hidden = false;
    this.#asking.hidden = true;
    byId("asking-code").textContent = "";
    this.#showProblem(problem);
    this.#secret.focus();
  }

  close() {
    this.#root.hidden = true;
    this.#showProblem("");
  }

  #showProblem(problem) {
    this.#problem.textContent = problem;
    this.#problem.hidden = !problem;
  }
}
