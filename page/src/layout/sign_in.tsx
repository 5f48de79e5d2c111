// The sign-in: a code, a token or a password, or a request that the owner approves.
import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { readSecret } from "../core/credentials";
import { pairingCode, signIn, signInProblem, signOut, stage, teamSignIn } from "../core/gateway";
import { Button } from "../parts/button";
import { Mark } from "./mark";

export function SignInPage() {
  return (
    <main id="sign-in-page">
      <div class="sign-in-card">
        <Mark />
        {stage.value === "asking" ? <Asking /> : teamSignIn.value ? <LazyTeamSignIn /> : <SignInForm />}
      </div>
    </main>
  );
}

/** The form of a team, which is loaded only where there is one. */
function LazyTeamSignIn() {
  const [Form, setForm] = useState<ComponentType | null>(null);
  useEffect(() => {
    import("../views/team_sign_in").then(
      (module) => setForm(() => module.default),
      () => (teamSignIn.value = false),
    );
  }, []);
  return Form && <Form />;
}

function SignInForm() {
  const [secret, setSecret] = useState("");
  const [stays, setStays] = useState(true);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const submit = (event: Event) => {
    event.preventDefault();
    setSecret("");
    if (secret.trim()) signIn(readSecret(secret), stays);
  };
  return (
    <form id="sign-in" autocomplete="off" onSubmit={submit}>
      <h1>Retinue</h1>
      <p>
        Sign in with a code. <code>retinue gateway pair --scope admin</code> prints one in a terminal, and{" "}
        <code>retinue up</code> does so when it starts. A token or a password works too.
      </p>
      <label for="secret">Code, token or password</label>
      <input
        id="secret"
        ref={field}
        type="password"
        required
        maxlength={500}
        autocapitalize="off"
        autocorrect="off"
        spellcheck={false}
        value={secret}
        onInput={(event) => setSecret(event.currentTarget.value)}
      />
      <label class="choice">
        <input type="checkbox" checked={stays} onChange={(event) => setStays(event.currentTarget.checked)} /> Stay
        signed in on this device
      </label>
      {signInProblem.value && (
        <p class="problem" role="alert">
          {signInProblem.value}
        </p>
      )}
      <Button type="submit" kind="primary">
        Sign in
      </Button>
      <Button onClick={() => signIn([{ requestPairing: true }], stays)}>Request access</Button>
    </form>
  );
}

function Asking() {
  return (
    <section id="asking" aria-label="Requesting access">
      <h1>Retinue</h1>
      <p>This device is waiting for the owner's approval. Its code:</p>
      <p id="asking-code" role="status">
        {pairingCode.value}
      </p>
      <p>
        The owner can approve it on this page on a signed-in device, or in a terminal on the gateway's machine:{" "}
        <code id="asking-command">retinue gateway devices approve {pairingCode.value}</code>. Keep this page open.
      </p>
      <Button onClick={() => signOut()}>Cancel</Button>
    </section>
  );
}
