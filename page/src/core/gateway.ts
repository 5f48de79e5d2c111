// The state of the sign-in and of the connection, and the one way to call the gateway.
import { computed, signal } from "@preact/signals";
import type { Credentials, Event, Hello, Scope } from "../generated/wire";
import { forgetCredentials, keepCredentials, keptCredentials, takeCode } from "./credentials";
import { type Call, Link, LinkLost, Refusal } from "./link";
import { forgetConversations } from "./preferences";

/** `out` shows the sign-in form, `asking` the code to compare, `in` the page. */
export type Stage = "starting" | "out" | "asking" | "in";

export const stage = signal<Stage>("starting");
export const hello = signal<Hello | null>(null);
export const isOnline = signal(false);
/** What the person must know about the connection or the last action; empty if all is well. */
export const trouble = signal("");
export const signInProblem = signal("");
/** Whether members of a team sign in here; their form is loaded then. */
export const teamSignIn = signal(false);
export const pairingCode = signal("");
export const scopes = computed<readonly Scope[]>(() => hello.value?.scopes ?? []);

/** Whether this device has a scope. Reads signals, so a view that asks is drawn again after the next sign-in. */
export function may(scope: Scope): boolean {
  return scopes.value.includes(scope);
}

/** Whether the gateway has a method, which an older one may lack. */
export function knows(method: string): boolean {
  return hello.value?.methods.includes(method) ?? false;
}

type Listener = (frame: Event) => void;
const listeners = new Set<Listener>();
const greeters = new Set<() => Promise<void>>();
const leavers = new Set<() => void>();

/** Hear every event of the gateway; returns the function that ends it. */
export function listen(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Run a function after each connection, in the order of registration. */
export function onGreeting(act: () => Promise<void>): () => void {
  greeters.add(act);
  return () => greeters.delete(act);
}

/** Run a function when the person signs out. */
export function onSignOut(act: () => void): void {
  leavers.add(act);
}

let link: Link | null = null;
let attempt = { credentials: {} as Credentials, others: [] as Credentials[], stay: true, isTyped: false };

export const call: Call = (method, params) => (link ? link.call(method, params) : Promise.reject(new LinkLost()));

/** Do something with the gateway and show a refusal; a lost connection is shown by what reconnects. */
export async function attempting<T>(act: () => Promise<T>): Promise<T | null> {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof LinkLost)) trouble.value = (error as Error).message;
    return null;
  }
}

export function start(): void {
  const code = takeCode();
  if (code === null) connect(keptCredentials());
  else signIn([{ pairingCode: code }], true);
}

export function signIn(attempts: Credentials[], stay: boolean): void {
  signInProblem.value = "";
  attempt = { credentials: {}, others: attempts.slice(1), stay, isTyped: true };
  connect(attempts[0] ?? {});
}

export function signOut(problem = "", keeps = false): void {
  if (!keeps) forgetCredentials();
  if (!problem && isMember()) void attempting(async () => (await import("./team")).leaveTeam());
  link?.close();
  isOnline.value = false;
  hello.value = null;
  for (const leave of leavers) leave();
  if (!keeps) forgetConversations();
  pairingCode.value = "";
  signInProblem.value = problem;
  stage.value = "out";
}

function isMember(): boolean {
  return hello.value?.tokenId.startsWith("member:") ?? false;
}

function connect(credentials: Credentials): void {
  link?.close();
  attempt.credentials = credentials;
  link = new Link(credentials, { greeted, heard, lost, waits, refused });
}

function heard(frame: Event): void {
  if (frame.event === "shutdown") trouble.value = `The gateway is shutting down: ${frame.payload.reason}.`;
  for (const listener of [...listeners]) listener(frame);
}

function lost(reason: string): void {
  isOnline.value = false;
  const problem = `${reason} Trying again …`;
  if (stage.value === "in") trouble.value = problem;
  else {
    signInProblem.value = problem;
    pairingCode.value = "";
    stage.value = "out";
  }
}

function waits(code: string): void {
  pairingCode.value = code;
  stage.value = "asking";
}

function refused(refusal: Refusal): void {
  teamSignIn.value = refusal.details.signIn === "team" || isMember();
  const next = attempt.others.shift();
  if (next) {
    connect(next);
    return;
  }
  const wasAsked = attempt.isTyped || Object.keys(attempt.credentials).length > 0;
  const isInvalid = refusal.code === "unauthenticated";
  if (isInvalid) forgetCredentials();
  signOut(wasAsked ? refusal.message : "", !isInvalid);
}

async function greeted(found: Hello): Promise<void> {
  hello.value = found;
  teamSignIn.value = isMember();
  if (attempt.isTyped) {
    keepCredentials(found.token ? { token: found.token } : attempt.credentials, attempt.stay);
    attempt = { credentials: keptCredentials(), others: [], stay: true, isTyped: false };
  }
  signInProblem.value = "";
  trouble.value = "";
  isOnline.value = true;
  stage.value = "in";
  await attempting(async () => {
    await call("sessions.subscribe", { gateway: true });
    for (const greet of greeters) await greet();
  });
}
