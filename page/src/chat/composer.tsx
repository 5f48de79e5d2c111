// The message field: Enter sends, Shift+Enter inserts a line break, `/` lists commands, Escape stops the turn.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { may } from "../core/gateway";
import { drafts } from "../core/preferences";
import { shorten } from "../core/text";
import type { Picture } from "../generated/wire";
import { IconButton } from "../parts/button";
import { Icon } from "../parts/icon";
import { type Attachment, readFiles, withFiles } from "./attachments";
import { thread } from "./thread";

const MAX_OFFERED = 8;
const ANY = -1;

/** A text that is put into the field from elsewhere, for example to edit a message. */
export const suggested = signal<string | null>(null);

export function focusComposer(): void {
  if (!matchMedia("(pointer: coarse)").matches) document.getElementById("message")?.focus();
}

export function Composer() {
  const key = thread.target.value ?? "";
  const isReady = thread.isReady.value;
  const text = drafts.value[key] ?? "";
  const setText = (value: string) => {
    const { [key]: _, ...rest } = drafts.value;
    drafts.value = value ? { ...rest, [key]: value } : rest;
  };
  const [files, setFiles] = useState<Attachment[]>([]);
  const [problem, setProblem] = useState("");
  const [isDropping, setDropping] = useState(false);
  const [chosen, setChosen] = useState(0);
  const [isDismissed, setDismissed] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  /** The opening after which the text is to be sent; `ANY` before the first one. */
  const held = useRef<number | null>(null);
  const mayWrite = may("write");
  const isRunning = thread.isRunning.value && mayWrite;
  const isEditing = thread.editing.value !== null && thread.editing.value.key === key;

  useEffect(focusComposer, [key]);
  useEffect(() => {
    if (suggested.value === null) return;
    setText(suggested.value);
    suggested.value = null;
    field.current?.focus();
  }, [suggested.value]);

  const begun = isDismissed ? null : /^\/([\w-]*)$/.exec(text);
  const wanted = begun?.[1]!.toLowerCase();
  const offered = begun
    ? thread.introduction.value.commandRows
        .filter(({ name }) => name.startsWith(wanted!) && name !== wanted)
        .slice(0, MAX_OFFERED)
    : [];
  const add = async (given: Iterable<File>) => {
    const read = await readFiles([...given], files);
    setFiles(read.files);
    setProblem(read.problem);
  };
  const submit = () => {
    const trimmed = text.trim();
    if (!trimmed && !files.length) return;
    held.current = isReady ? null : thread.key.value === null ? ANY : thread.opening;
    if (!isReady) return;
    const name = /^\/([a-z][\w-]*)(?:\s|$)/i.exec(trimmed)?.[1];
    const known = thread.introduction.value.commandRows;
    if (name && known.length && !known.some((each) => each.name === name.toLowerCase())) {
      setProblem(`There is no command /${name}, so nothing was sent. Type / to see all commands.`);
      return;
    }
    const images: Picture[] = files.flatMap(({ picture }) => (picture ? [picture] : []));
    const message = withFiles(trimmed, files);
    setText("");
    setFiles([]);
    setProblem("");
    if (!isEditing) thread.send(message, images);
    else {
      void thread.branch(message, images).then((isSent) => {
        if (!isSent) setText(trimmed); // the reason is shown above
      });
    }
  };
  useEffect(() => {
    if (isReady && (held.current === ANY || held.current === thread.opening)) submit();
  }, [isReady]);
  const complete = (name: string) => {
    setText(`/${name} `);
    setChosen(0);
    field.current?.focus();
  };
  /** Handle a key while commands are listed; false if the key has its usual meaning. */
  const choose = (pressed: string): boolean => {
    if (pressed === "ArrowDown") setChosen((chosen + 1) % offered.length);
    else if (pressed === "ArrowUp") setChosen((chosen + offered.length - 1) % offered.length);
    else if (pressed === "Tab") complete(offered[Math.min(chosen, offered.length - 1)]!.name);
    else if (pressed === "Escape") setDismissed(true);
    else return false;
    return true;
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (offered.length && choose(event.key)) event.preventDefault();
    else if (event.key === "Enter" && !event.shiftKey && !matchMedia("(pointer: coarse)").matches) {
      event.preventDefault();
      submit();
    } else if (event.key === "Escape" && isRunning) thread.stop();
  };
  const pasted = (event: ClipboardEvent) => {
    const given = [...(event.clipboardData?.files ?? [])];
    if (!given.length) return;
    event.preventDefault();
    void add(given);
  };

  return (
    <form
      id="composer"
      class={isDropping ? "dropping" : ""}
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
      onDragOver={(event) => {
        event.preventDefault();
        setDropping(true);
      }}
      onDragLeave={() => setDropping(false)}
      onDrop={(event) => {
        event.preventDefault();
        setDropping(false);
        void add(event.dataTransfer?.files ?? []);
      }}
    >
      <ul id="commands" role="listbox" aria-label="Commands" hidden={!offered.length}>
        {offered.map(({ name, summary }, place) => (
          <li
            key={name}
            id={`command-${place}`}
            role="option"
            aria-selected={place === chosen}
            onMouseDown={(event) => event.preventDefault()}
            onClick={() => complete(name)}
          >
            <b>/{name}</b>
            {summary && <span class="faint"> {summary}</span>}
          </li>
        ))}
      </ul>
      {problem && (
        <p class="problem composer-problem" role="alert">
          {problem}
        </p>
      )}
      {isEditing && (
        <p class="editing-line" role="status">
          <Icon name="git-fork" size={14} />
          <span>Goes on in a branch; this conversation stays as it is.</span>
          <button
            type="button"
            class="link"
            onClick={() => {
              thread.editing.value = null;
              setText("");
              field.current?.focus();
            }}
          >
            Cancel
          </button>
        </p>
      )}
      {files.length > 0 && (
        <ul class="attachments" aria-label="Attachments">
          {files.map((file) => (
            <li key={file.id}>
              <Icon name={file.picture ? "image" : "file-text"} />
              <bdi>{shorten(file.name, 40)}</bdi>
              <IconButton
                icon="x"
                label={`Remove ${shorten(file.name, 40)}`}
                class="small"
                onClick={() => setFiles(files.filter((each) => each !== file))}
              />
            </li>
          ))}
        </ul>
      )}
      <label class="unseen" for="message">
        Message
      </label>
      <textarea
        ref={field}
        id="message"
        rows={1}
        value={text}
        disabled={!mayWrite}
        placeholder={mayWrite ? "Message, / for commands, drop files" : "This device can only read."}
        maxlength={1_000_000}
        aria-autocomplete="list"
        aria-haspopup="listbox"
        aria-controls="commands"
        aria-activedescendant={offered.length ? `command-${chosen}` : undefined}
        onInput={(event) => {
          held.current = null;
          setText(event.currentTarget.value);
          setChosen(0);
          setDismissed(false);
          setProblem("");
        }}
        onKeyDown={pressed}
        onPaste={pasted}
      />
      <div class="composer-bar">
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          onChange={(event) => {
            void add(event.currentTarget.files ?? []);
            event.currentTarget.value = "";
          }}
        />
        <IconButton icon="paperclip" label="Attach files" disabled={!mayWrite} onClick={() => picker.current?.click()} />
        <span class="composer-hint faint">Enter sends · Shift+Enter starts a line</span>
        {isRunning && <IconButton icon="square" label="Stop" class="stop" onClick={() => thread.stop()} />}
        <IconButton icon="arrow-up" label="Send" class="send" type="submit" disabled={!mayWrite} />
      </div>
    </form>
  );
}
