/** The sign of the product. */
export function Mark({ size = 44 }: { size?: number }) {
  return <img class="mark" src="./icon.svg" width={size} height={size} alt="" />;
}
