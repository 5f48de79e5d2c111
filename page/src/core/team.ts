// Requests of the sign-in of a team. The token is in a cookie that this page cannot read.
import { Refusal } from "./link";

export interface TeamSignInFacts {
  team: string;
  name: string;
  password: boolean;
  provider: string | null;
}

/** Call a path below `auth/`; rejects with a `Refusal`. */
export async function ask<T>(path: string, body?: object): Promise<T> {
  const json = { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const response = await fetch(`auth/${path}`, body ? json : {});
  const found = await response.json();
  if (!response.ok) throw new Refusal(found.error);
  return found;
}

/** End the sign-in at the gateway, and then at the identity provider. */
export async function leaveTeam(): Promise<void> {
  const { provider } = await ask<{ provider: string | null }>("sign-out", {});
  if (provider) location.assign(provider);
}
