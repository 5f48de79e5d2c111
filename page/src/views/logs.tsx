// The newest records of the log, read again every few seconds while they are followed.
import { useEffect, useState } from "preact/hooks";
import { may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { saveFile } from "../core/save_file";
import { reveal, shorten } from "../core/text";
import { clockTime, exactTime } from "../core/time";
import type { LogLine } from "../generated/wire";
import { Button } from "../parts/button";
import { SearchField, Select, Toggle } from "../parts/field";
import { EmptyState } from "../parts/states";
import { Loaded, View } from "../parts/view";

const EVERY_MS = 3_000;
const LEVELS = [
  ["debug", "Everything"],
  ["info", "Information"],
  ["warning", "Warnings"],
  ["error", "Errors"],
] as const;

export default function LogsView() {
  const [level, setLevel] = useState("info");
  const [wanted, setWanted] = useState("");
  const [follows, setFollows] = useState(false);
  const logs = useMethod("logs.tail", may("admin") ? { level: level as "info", limit: 500 } : null);
  useEffect(() => {
    if (!follows) return undefined;
    const timer = setInterval(() => void logs.reload(), EVERY_MS);
    return () => clearInterval(timer);
  }, [follows, level]);
  const words = wanted.trim().toLowerCase();
  const fits = (line: LogLine) => `${line.message} ${line.logger} ${line.session ?? ""}`.toLowerCase().includes(words);
  return (
    <View
      title="Logs"
      about="What the gateway wrote down, without secrets."
      needs="admin"
      wide
      actions={
        <>
          <Toggle label="Follow" checked={follows} onChange={setFollows} />
          <Select label="Level" hideLabel value={level} options={LEVELS} onChange={setLevel} />
        </>
      }
    >
      <SearchField label="Filter the log" value={wanted} onInput={setWanted} />
      <Loaded from={logs}>
        {({ records, path }) => {
          const found = records.filter(fits).reverse();
          return (
            <>
              <p class="row wrap faint">
                <code>{path}</code>
                <Button icon="download" onClick={() => download(found)}>
                  Export
                </Button>
              </p>
              {found.length ? (
                <ul class="log-lines" aria-label="Records, newest first">
                  {found.slice(0, 500).map((line, place) => (
                    <li key={place}>
                      <span title={exactTime(line.time)}>{clockTime(line.time)}</span>
                      <span class={`level-${line.level}`}>{line.level}</span>
                      <span>
                        <span class="faint">{shorten(line.logger, 40)}</span> {reveal(line.message)}
                      </span>
                    </li>
                  ))}
                </ul>
              ) : (
                <EmptyState icon="scroll-text" title="No records of this kind" />
              )}
            </>
          );
        }}
      </Loaded>
    </View>
  );
}

function download(lines: LogLine[]): void {
  saveFile("retinue-log.jsonl", lines.map((line) => JSON.stringify(line)).join("\n"));
}
