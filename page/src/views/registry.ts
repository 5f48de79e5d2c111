// Every view of the page: one line here, one file beside it. Views other than the chat are loaded when they are opened.
import type { ComponentType } from "preact";
import type { IconName } from "../generated/icons";

export interface ViewEntry {
  id: string;
  title: string;
  icon: IconName;
  group: "work" | "assistant" | "system" | "hidden";
  /** A method without which an older gateway cannot show the view. */
  needs?: string;
  load: () => Promise<{ default: ComponentType }>;
}

export const VIEWS: readonly ViewEntry[] = [
  { id: "threads", title: "Threads", icon: "messages-square", group: "work", load: () => import("./threads") },
  { id: "approvals", title: "Approvals", icon: "shield-check", group: "work", load: () => import("./approvals") },
  { id: "devices", title: "Devices", icon: "monitor-smartphone", group: "system", load: () => import("./devices") },
  { id: "gallery", title: "Gallery", icon: "layers", group: "hidden", load: () => import("./gallery") },
];

export const GROUPS = [
  ["work", "Work"],
  ["assistant", "Assistant"],
  ["system", "System"],
] as const;
