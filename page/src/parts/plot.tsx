// A stacked bar for each day. A table says the same, so the drawing is one picture for screen readers.
import { short } from "./bits";

export interface Series {
  name: string;
  values: number[];
}

interface PlotProps {
  labels: string[];
  series: Series[];
  unit: string;
  format?: (value: number) => string;
}

export function StackedBars({ labels, series, unit, format = short }: PlotProps) {
  const totals = labels.map((_, day) => series.reduce((sum, { values }) => sum + (values[day] ?? 0), 0));
  const most = Math.max(0, ...totals) || 1;
  const every = Math.ceil(labels.length / 6);
  return (
    <figure class="plot">
      <div class="plot-frame" role="img" aria-label={`${unit} by day, at most ${format(most)}`}>
        <span class="plot-most">{format(most)}</span>
        <div class="plot-bars">
          {labels.map((label, day) => (
            <div key={label} class="plot-day" title={`${label}: ${format(totals[day]!)} ${unit}`}>
              {series.map(({ name, values }, place) => (
                <span
                  key={name}
                  class={`plot-${place % 6}`}
                  style={{ height: `${((values[day] ?? 0) / most) * 100}%` }}
                />
              ))}
            </div>
          ))}
        </div>
        <div class="plot-ticks">
          {labels.filter((_, day) => day % every === 0).map((label) => (
            <span key={label}>{dayName(label)}</span>
          ))}
        </div>
      </div>
      {series.length > 1 && (
        <figcaption class="row wrap faint">
          {series.map(({ name }, place) => (
            <span key={name} class="row">
              <span class={`plot-key plot-${place % 6}`} /> <bdi>{name}</bdi>
            </span>
          ))}
        </figcaption>
      )}
    </figure>
  );
}

function dayName(label: string): string {
  const day = new Date(`${label}T12:00:00`);
  return Number.isNaN(day.getTime()) ? label : day.toLocaleDateString([], { month: "short", day: "numeric" });
}
