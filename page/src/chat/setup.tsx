// The guided first run: one step at a time, with the same questions as `retinue setup` in a terminal.
import { signal } from "@preact/signals";
import { type ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { attempting, call, may, onGreeting, onSignOut } from "../core/gateway";
import { loadAgents } from "../core/stores";
import type { DownloadOption, DownloadState, KeyTried, SetupState } from "../generated/wire";
import { Button } from "../parts/button";
import { Icon } from "../parts/icon";
import { Select } from "../parts/field";
import { thread } from "./thread";

const POLL_MS = 1_000;
const MB = 1e6;

/** The progress of the setup; null for those who may not do it. */
export const setup = signal<SetupState | null>(null);

async function load(): Promise<void> {
  setup.value = may("admin") ? await call("setup.get") : null;
}
onGreeting(load);
onSignOut(() => {
  setup.value = null;
});

/** Call a method whose result is the new state. */
async function answer(act: () => Promise<SetupState>): Promise<void> {
  const state = await attempting(act);
  if (state) setup.value = state;
}

export function SetupCard() {
  const state = setup.value!;
  const step = state.steps.find(({ id }) => id === state.next)!;
  const number = state.steps.indexOf(step) + 1;
  const bodies: Record<string, () => ComponentChildren> = {
    model: () => <ModelStep state={state} />,
    you: () => (
      <StepForm
        key="you"
        label="Your name"
        action="Continue"
        submit={(userName) => answer(() => call("setup.profile", { userName }))}
      />
    ),
    agent: () => <AgentStep state={state} />,
    first: () => <FirstStep state={state} />,
  };
  return (
    <section id="setup" aria-label="Setup">
      <div class="setup-card">
        <ol class="setup-steps" aria-label="Steps">
          {state.steps.map((each) => (
            <li key={each.id} aria-current={each === step ? "step" : undefined} class={each.done ? "done" : ""}>
              {each.done && <Icon name="check" size={12} />}
              <span class="unseen">
                {each.title}
                {each.done ? ", done" : each.skipped ? ", skipped" : ""}
              </span>
            </li>
          ))}
        </ol>
        <p class="faint">
          Setup, {number} of {state.steps.length}
        </p>
        <h2>{step.title}</h2>
        {bodies[step.id]?.()}
        <Button kind="quiet" onClick={() => answer(() => call("setup.skip", { step: step.id }))}>
          Skip
        </Button>
      </div>
    </section>
  );
}

function ModelStep({ state }: { state: SetupState }) {
  const [tried, setTried] = useState<(KeyTried & { key: string }) | null>(null);
  const giveKey = async (key: string, provider: string | null = null, anyway = false) => {
    const result = await attempting(() => call("setup.key", { key, provider, anyway }));
    if (!result) return;
    if (result.stored) await attempting(load);
    else setTried({ ...result, key });
  };
  return (
    <>
      <p>Paste a key of Anthropic, OpenAI, Google, OpenRouter or another provider: it is tried at once.</p>
      <StepForm label="Key of a provider" type="password" action="Try the key" submit={(key) => giveKey(key)} />
      {tried && (
        <div class="problem" role="alert">
          <p>{tried.message}</p>
          <div class="row wrap">
            {tried.providers.map((name) => (
              <Button key={name} onClick={() => giveKey(tried.key, name)}>
                {name}
              </Button>
            ))}
            {tried.model && !tried.ok && !tried.providers.length && (
              <Button onClick={() => giveKey(tried.key, tried.model!.split("/")[0], true)}>Store it anyway</Button>
            )}
          </div>
        </div>
      )}
      {state.models.map(({ model, about, baseUrl }) => (
        <Button key={model} icon="cpu" onClick={() => answer(() => call("setup.model", { model, baseUrl }))}>
          {`${model} (${about})`}
        </Button>
      ))}
      {state.download.state === "running" ? <Downloading first={state.download} /> : <Downloads state={state} />}
    </>
  );
}

function describeDownload({ name, bytes, received, memory, tokensPerSecond, licence }: DownloadOption): string {
  const size = `${Math.round(bytes / MB).toLocaleString("en")} MB`;
  const left = received ? `, ${Math.floor((100 * received) / bytes)} % are here` : "";
  const needs = `${(memory / 1e9).toFixed(1)} GB of memory, about ${tokensPerSecond} tokens/s, ${licence}`;
  return `${name} (${size}${left}; ${needs})`;
}

function Downloads({ state: { downloads, download } }: { state: SetupState }) {
  const begin = async (name: string) => {
    if (await attempting(() => call("setup.download", { name }))) await attempting(load);
  };
  return (
    <details class="fold" open={Boolean(download.message)}>
      <summary>Download a model that runs on the machine of the gateway</summary>
      <div class="fold-body">
        {download.message && (
          <p class="problem" role="alert">
            {download.message}
          </p>
        )}
        <ul class="plain-list">
          {downloads.map((option) => (
            <li key={option.name}>
              <Button icon="download" onClick={() => begin(option.name)}>
                {describeDownload(option)}
              </Button>{" "}
              {option.about}
            </li>
          ))}
        </ul>
      </div>
    </details>
  );
}

/** Follows the download as long as it is shown. */
function Downloading({ first }: { first: DownloadState }) {
  const [{ name, stage, done, total }, setState] = useState(first);
  useEffect(() => {
    const timer = setInterval(async () => {
      const state = await attempting(() => call("setup.downloading"));
      if (state?.state === "running") setState(state);
      else if (state) await attempting(load);
    }, POLL_MS);
    return () => clearInterval(timer);
  }, []);
  const stop = async () => {
    await call("setup.stop");
    await load();
  };
  const share = total ? `: ${Math.floor((100 * done) / total)} % of ${Math.round(total / MB).toLocaleString("en")} MB` : "";
  return (
    <p class="download">
      <progress aria-label="Download" {...(total ? { max: total, value: done } : {})} /> {name}, {stage}
      {share} <Button onClick={stop}>Stop</Button>
    </p>
  );
}

function AgentStep({ state }: { state: SetupState }) {
  const [temper, setTemper] = useState(state.tempers[0] ?? "");
  const submit = async (agentName: string) => {
    await answer(() => call("setup.profile", { agentName, temper }));
    await attempting(loadAgents);
  };
  return (
    <StepForm key="agent" label="The agent's name" action="Continue" submit={submit}>
      <Select label="Temper" value={temper} options={state.tempers.map((name) => [name, name])} onChange={setTemper} />
    </StepForm>
  );
}

function FirstStep({ state }: { state: SetupState }) {
  const begin = async (message: string) => {
    await answer(() => call("setup.skip", { step: "first", done: true }));
    thread.send(message);
  };
  return (
    <div class="suggestions">
      {state.firstTasks.map(({ title, message }) => (
        <Button key={title} icon="sparkles" onClick={() => begin(message)}>
          {title}
        </Button>
      ))}
    </div>
  );
}

interface StepFormProps {
  label: string;
  action: string;
  type?: "text" | "password";
  submit: (value: string) => Promise<unknown>;
  children?: ComponentChildren;
}

function StepForm({ label, action, type = "text", submit, children }: StepFormProps) {
  const [value, setValue] = useState("");
  const [isBusy, setBusy] = useState(false);
  return (
    <form
      class="step-form"
      onSubmit={async (event) => {
        event.preventDefault();
        const given = value.trim();
        if (!given) return;
        if (type === "password") setValue("");
        setBusy(true);
        await submit(given);
        setBusy(false);
      }}
    >
      <input
        type={type as "text"}
        aria-label={label}
        placeholder={label}
        required
        maxlength={500}
        autocomplete="off"
        value={value}
        disabled={isBusy}
        onInput={(event) => setValue(event.currentTarget.value)}
      />
      {children}
      <Button type="submit" kind="primary" disabled={isBusy}>
        {action}
      </Button>
    </form>
  );
}
