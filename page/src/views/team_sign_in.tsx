// The sign-in of a team: at the identity provider, with a password, or with an invitation.
import { useEffect, useState } from "preact/hooks";
import { signIn, signInProblem, teamSignIn } from "../core/gateway";
import { ask, type TeamSignInFacts } from "../core/team";
import { Button } from "../parts/button";
import { Field } from "../parts/field";

export default function TeamSignIn() {
  const [facts, setFacts] = useState<TeamSignInFacts | null>(null);
  const [invitation] = useState(() => new URLSearchParams(location.hash.slice(1)).get("invitation"));
  useEffect(() => {
    ask<TeamSignInFacts>("team").then(setFacts, (error: Error) => (signInProblem.value = error.message));
  }, []);
  return (
    <section id="team-sign-in" class="stack" aria-label="Sign in">
      <h1>{facts?.name ?? "Retinue"}</h1>
      {signInProblem.value && (
        <p class="problem" role="alert">
          {signInProblem.value}
        </p>
      )}
      {invitation ? <Join invitation={invitation} /> : facts && <Ways facts={facts} />}
      <Button onClick={() => void (teamSignIn.value = false)}>Use a code or token</Button>
    </section>
  );
}

function Ways({ facts }: { facts: TeamSignInFacts }) {
  return (
    <>
      {facts.provider && (
        <Button kind="primary" onClick={() => location.assign("auth/provider")}>
          {facts.provider}
        </Button>
      )}
      {facts.password && <WithPassword isFirst={!facts.provider} />}
    </>
  );
}

/** Send what was typed; the cookie of the answer then signs the connection in. */
async function enter(path: string, body: object): Promise<void> {
  try {
    await ask(path, body);
  } catch (error) {
    signInProblem.value = (error as Error).message;
    return;
  }
  if (location.hash.includes("invitation=")) history.replaceState(null, "", location.pathname + location.search);
  signIn([{}], true);
}

function WithPassword({ isFirst }: { isFirst: boolean }) {
  const [login, setLogin] = useState("");
  const [password, setPassword] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    setPassword("");
    void enter("password", { login, password });
  };
  return (
    <form class="stack" onSubmit={submit}>
      <Field label="E-mail address" value={login} onInput={setLogin} required maxlength={200} />
      <Field label="Password" type="password" value={password} onInput={setPassword} required maxlength={500} />
      <Button type="submit" kind={isFirst ? "primary" : undefined}>
        Sign in
      </Button>
    </form>
  );
}

function Join({ invitation }: { invitation: string }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    void enter("invitation", { invitation, name, password });
  };
  return (
    <form class="stack" onSubmit={submit}>
      <p>You are invited to this team. Choose your name and a password.</p>
      <Field label="Name" value={name} onInput={setName} required maxlength={100} />
      <Field label="Password" type="password" value={password} onInput={setPassword} required maxlength={500} />
      <Button type="submit" kind="primary">
        Join
      </Button>
    </form>
  );
}
