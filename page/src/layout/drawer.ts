import { signal } from "@preact/signals";

/** Below 900 px the rail is a drawer. */
export const drawerIsOpen = signal(false);

/** Close the drawer; the focus returns to its button. */
export function closeDrawer(): void {
  if (!drawerIsOpen.value) return;
  drawerIsOpen.value = false;
  requestAnimationFrame(() => document.getElementById("menu")?.focus());
}
