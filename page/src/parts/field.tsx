import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { Icon } from "./icon";

interface FieldProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  type?: "text" | "password" | "number" | "url";
  placeholder?: string;
  hint?: ComponentChildren;
  problem?: string;
  required?: boolean;
  maxlength?: number;
  hideLabel?: boolean;
  disabled?: boolean;
  mono?: boolean;
  rows?: number;
}

export function Field({ label, value, onInput, hint, problem, hideLabel, rows, mono, type, ...rest }: FieldProps) {
  const id = useId();
  const described = hint || problem ? `${id}-about` : undefined;
  const common = {
    id,
    value,
    ...rest,
    class: mono ? "mono" : "",
    autocomplete: "off",
    spellcheck: !mono,
    "aria-describedby": described,
    "aria-invalid": problem ? true : undefined,
  };
  return (
    <div class="field">
      <label for={id} class={hideLabel ? "unseen" : ""}>
        {label}
      </label>
      {rows ? (
        <textarea {...common} rows={rows} onInput={(event) => onInput(event.currentTarget.value)} />
      ) : (
        <input {...common} type={type as "text"} onInput={(event) => onInput(event.currentTarget.value)} />
      )}
      {described && (
        <p id={described} class={problem ? "problem" : "faint"}>
          {problem || hint}
        </p>
      )}
    </div>
  );
}

interface SearchProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  placeholder?: string;
  autofocus?: boolean;
}

export function SearchField({ label, value, onInput, placeholder = label, autofocus }: SearchProps) {
  return (
    <div class="search-field">
      <Icon name="search" />
      <input
        type="search"
        aria-label={label}
        placeholder={placeholder}
        value={value}
        autofocus={autofocus}
        autocomplete="off"
        onInput={(event) => onInput(event.currentTarget.value)}
      />
    </div>
  );
}

interface SelectProps {
  label: string;
  value: string;
  options: readonly (readonly [value: string, text: string])[];
  onChange: (value: string) => void;
  hideLabel?: boolean;
  disabled?: boolean;
  id?: string;
}

export function Select({ label, value, options, onChange, hideLabel, disabled, id: given }: SelectProps) {
  const made = useId();
  const id = given ?? made;
  return (
    <div class="field">
      <label for={id} class={hideLabel ? "unseen" : ""}>
        {label}
      </label>
      <select id={id} value={value} disabled={disabled} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([each, text]) => (
          <option key={each} value={each} selected={each === value}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}

interface ToggleProps {
  label: string;
  checked: boolean;
  onChange: (checked: boolean) => void;
  disabled?: boolean;
  hideLabel?: boolean;
}

export function Toggle({ label, checked, onChange, disabled, hideLabel }: ToggleProps) {
  return (
    <label class="toggle">
      <input
        type="checkbox"
        role="switch"
        checked={checked}
        disabled={disabled}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
      <span class="toggle-track" aria-hidden="true" />
      <span class={hideLabel ? "unseen" : ""}>{label}</span>
    </label>
  );
}
