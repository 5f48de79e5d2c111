// Credentials are kept in the browser's storage and are never part of an address.
import type { Credentials } from "../generated/wire";

const KEPT = "retinue.credentials";
const CODE = /^[a-hj-np-z2-9]{4}-?[a-hj-np-z2-9]{4}$/i;

/** The stored credentials; empty if there are none. */
export function keptCredentials(): Credentials {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? localStorage.getItem(KEPT) ?? "{}");
  } catch {
    return {};
  }
}

export function keepCredentials(credentials: Credentials, stay: boolean): void {
  forgetCredentials();
  (stay ? localStorage : sessionStorage).setItem(KEPT, JSON.stringify(credentials));
}

export function forgetCredentials(): void {
  sessionStorage.removeItem(KEPT);
  localStorage.removeItem(KEPT);
}

/** The pairing code in the address that a QR code contains. It is removed from the address, and can be used once. */
export function takeCode(): string | null {
  const code = new URLSearchParams(location.hash.slice(1)).get("pair");
  if (code !== null) history.replaceState(null, "", location.pathname + location.search);
  return code !== null && CODE.test(code) ? code : null;
}

/** The kinds of credentials that a typed secret may be, the most likely first. */
export function readSecret(typed: string): Credentials[] {
  const secret = typed.trim();
  if (secret.startsWith("rtn_")) return [{ token: secret }];
  const plain = { token: secret, password: secret };
  if (!CODE.test(secret)) return [plain];
  return secret.includes("-") ? [{ pairingCode: secret }] : [{ pairingCode: secret }, plain];
}
