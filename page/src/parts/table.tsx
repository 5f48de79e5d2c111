// A table that sorts by any column; on a phone each row becomes a card.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Icon } from "./icon";

export interface Column<T> {
  title: string;
  cell: (row: T) => ComponentChildren;
  /** What to sort by; without it the column is not sortable. */
  by?: (row: T) => string | number;
  isNumber?: boolean;
  /** On a phone, the column takes a line of its own. */
  isWide?: boolean;
}

interface TableProps<T> {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  keyOf: (row: T) => string;
  onOpen?: (row: T) => void;
}

const FIRST_ROWS = 100;

export function Table<T>({ label, columns, rows, keyOf }: TableProps<T>) {
  const [sorting, setSorting] = useState<{ column: number; isDown: boolean } | null>(null);
  const [most, setMost] = useState(FIRST_ROWS);
  const by = sorting && columns[sorting.column]?.by;
  const compare = (a: T, b: T) => {
    const [first, second] = [by!(a), by!(b)];
    const order = first < second ? -1 : first > second ? 1 : 0;
    return sorting!.isDown ? -order : order;
  };
  const sorted = by ? [...rows].sort(compare) : rows;
  return (
    <div class="table-frame">
      <table class="table" aria-label={label}>
        <thead>
          <tr>
            {columns.map(({ title, by: sortable, isNumber }, place) => {
              const isSorted = sorting?.column === place;
              const order = isSorted ? (sorting.isDown ? "descending" : "ascending") : undefined;
              return (
                <th key={title} class={isNumber ? "number" : ""} aria-sort={order} scope="col">
                  {sortable ? (
                    <button
                      type="button"
                      class="sort"
                      onClick={() => setSorting({ column: place, isDown: isSorted ? !sorting.isDown : Boolean(isNumber) })}
                    >
                      {title}
                      {isSorted && <Icon name={sorting.isDown ? "chevron-down" : "chevron-up"} size={12} />}
                    </button>
                  ) : (
                    title
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {sorted.slice(0, most).map((row) => (
            <tr key={keyOf(row)}>
              {columns.map(({ title, cell, isNumber, isWide }, place) => (
                <td key={title} class={isNumber ? "number" : ""} data-label={place ? title : undefined} data-wide={isWide}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {sorted.length > most && (
        <button type="button" class="button quiet" onClick={() => setMost(most * 4)}>
          Show more of {sorted.length.toLocaleString()} rows
        </button>
      )}
    </div>
  );
}
