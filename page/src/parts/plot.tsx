// A stacked bar for each day. The table below it says the same, so the drawing is hidden from screen readers.
import { short } from "./bits";

export interface Series {
  name: string;
  values: number[];
}

const HEIGHT = 140;
const WIDTH = 640;

export function StackedBars({ labels, series, unit }: { labels: string[]; series: Series[]; unit: string }) {
  const totals = labels.map((_, day) => series.reduce((sum, { values }) => sum + (values[day] ?? 0), 0));
  const most = Math.max(1, ...totals);
  const step = WIDTH / Math.max(1, labels.length);
  return (
    <figure class="plot">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT + 22}`} role="img" aria-label={`${unit} by day, at most ${short(most)}`}>
        <line class="plot-line" x1={0} y1={HEIGHT} x2={WIDTH} y2={HEIGHT} />
        {labels.map((label, day) => {
          let top = HEIGHT;
          return (
            <g key={label}>
              <title>{`${label}: ${short(totals[day]!)} ${unit}`}</title>
              {series.map(({ name, values }, place) => {
                const height = ((values[day] ?? 0) / most) * (HEIGHT - 12);
                top -= height;
                const width = Math.max(2, Math.min(28, step * 0.7));
                const x = day * step + (step - width) / 2;
                return <rect key={name} class={`plot-${place % 6}`} x={x} y={top} width={width} height={height} rx={2} />;
              })}
              {(labels.length <= 10 || day % Math.ceil(labels.length / 8) === 0) && (
                <text x={Math.max(16, day * step + step / 2)} y={HEIGHT + 16} text-anchor="middle">
                  {label.slice(5)}
                </text>
              )}
            </g>
          );
        })}
      </svg>
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
