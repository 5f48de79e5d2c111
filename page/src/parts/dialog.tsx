import { type ComponentChildren } from "preact";
import { signal } from "@preact/signals";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Button, IconButton } from "./button";
import { Field } from "./field";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  class?: string;
}

/** A dialog in front of everything; the browser keeps the focus inside and returns it. */
export function Dialog({ title, onClose, children, class: kind = "" }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const opener = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    return () => opener?.focus();
  }, []);
  const clicked = (event: MouseEvent) => {
    if (event.target === dialog.current) onClose();
  };
  return (
    <dialog ref={dialog} class={`dialog ${kind}`} aria-labelledby={id} onClose={onClose} onClick={clicked}>
      <div class="dialog-body">
        <header>
          <h2 id={id}>{title}</h2>
          <IconButton icon="x" label="Close" onClick={onClose} />
        </header>
        {children}
      </div>
    </dialog>
  );
}

interface Question {
  title: string;
  text?: string;
  action: string;
  isDanger?: boolean;
  /** The present value of the text that is asked for; without it only a confirmation is asked. */
  value?: string;
  label?: string;
  answer: (value: string | null) => void;
}

const question = signal<Question | null>(null);

/** Ask for a confirmation. */
export function confirm(title: string, text: string, action: string, isDanger = true): Promise<boolean> {
  return new Promise((resolve) => {
    question.value = { title, text, action, isDanger, answer: (value) => resolve(value !== null) };
  });
}

/** Ask for one line of text; null if the person cancels. */
export function askText(title: string, label: string, value: string, action: string): Promise<string | null> {
  return new Promise((answer) => {
    question.value = { title, label, value, action, answer };
  });
}

/** The place where questions appear. */
export function Questions() {
  return question.value && <QuestionDialog key={question.value.title} {...question.value} />;
}

function QuestionDialog({ title, text, action, isDanger, value, label, answer }: Question) {
  const [typed, setTyped] = useState(value ?? "");
  const end = (given: string | null) => {
    if (!question.value) return;
    question.value = null;
    answer(given);
  };
  return (
    <Dialog title={title} onClose={() => end(null)}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          end(typed);
        }}
      >
        {text && <p>{text}</p>}
        {value !== undefined && <Field label={label ?? title} value={typed} onInput={setTyped} maxlength={200} />}
        <div class="row end">
          <Button onClick={() => end(null)}>Cancel</Button>
          <Button type="submit" kind={isDanger ? "danger" : "primary"}>
            {action}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
