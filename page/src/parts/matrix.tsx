// What each kind of principal may do with an agent, as a grid; a cell opens what decides it.
import { openPanel } from "../core/panel";
import { withCode } from "../core/text";
import type { MatrixRow } from "../generated/wire";
import type { IconName } from "../generated/icons";
import { Badge, type Tone } from "./bits";
import { Icon } from "./icon";

const DECISIONS: Record<string, readonly [Tone, IconName]> = {
  allow: ["ok", "check"],
  ask: ["warn", "clock"],
  deny: ["danger", "x"],
};

function distinct(values: string[]): string[] {
  return [...new Set(values)];
}

export function CapabilityMatrix({ rows, label }: { rows: readonly MatrixRow[]; label: string }) {
  const capabilities = distinct(rows.map(({ capability }) => capability));
  return (
    <div class="table-frame" tabindex={0} role="group" aria-label={label}>
      <table class="matrix" aria-label={label}>
        <thead>
          <tr>
            <th scope="col">Who</th>
            {capabilities.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {distinct(rows.map(({ principal }) => principal)).map((principal) => (
            <tr key={principal}>
              <th scope="row">{principal}</th>
              {capabilities.map((capability) => {
                const row = rows.find((each) => each.principal === principal && each.capability === capability);
                return <td key={capability}>{row ? <Cell row={row} /> : null}</td>;
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Cell({ row }: { row: MatrixRow }) {
  const [tone, icon] = DECISIONS[row.decision] ?? (["plain", "info"] as const);
  const says = `${row.principal} ${row.capability}: ${row.decision}`;
  return (
    <button type="button" class={`matrix-cell ${tone}`} aria-label={says} title={`${says}, ${row.by}`} onClick={() => explain(row)}>
      <Icon name={icon} />
      <span aria-hidden="true">{row.decision}</span>
    </button>
  );
}

function explain({ principal, agent, capability, decision, by }: MatrixRow): void {
  openPanel(`${principal}: ${capability}`, () => (
    <dl class="facts">
      <dt>Who</dt>
      <dd>{principal}</dd>
      <dt>Agent</dt>
      <dd>{agent}</dd>
      <dt>Decision</dt>
      <dd>
        <Badge tone={DECISIONS[decision]?.[0] ?? "plain"}>{decision}</Badge>
      </dd>
      <dt>Because</dt>
      <dd>{withCode(by)}</dd>
    </dl>
  ));
}
