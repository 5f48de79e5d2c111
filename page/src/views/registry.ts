// Every view of the page: one line here, one file beside it. Views other than the chat are loaded when they are opened.
import type { ComponentType } from "preact";
import type { IconName } from "../generated/icons";

export interface ViewEntry {
  id: string;
  title: string;
  /** A shorter title for the rail. */
  brief?: string;
  icon: IconName;
  group: "work" | "assistant" | "system" | "hidden";
  /** A method without which an older gateway cannot show the view. */
  needs?: string;
  load: () => Promise<{ default: ComponentType }>;
}

export const VIEWS: readonly ViewEntry[] = [
  { id: "threads", title: "Threads", icon: "messages-square", group: "work", load: () => import("./threads") },
  { id: "approvals", title: "Approvals", icon: "shield-check", group: "work", load: () => import("./approvals") },
  { id: "automations", title: "Automations", icon: "calendar-clock", group: "work", load: () => import("./automations") },
  { id: "running", title: "Running", icon: "activity", group: "work", load: () => import("./running") },
  { id: "agents", title: "Agents", icon: "bot", group: "assistant", load: () => import("./agents") },
  { id: "memory", title: "Memory", icon: "brain", group: "assistant", load: () => import("./memory") },
  { id: "skills", title: "Skills", icon: "book-open", group: "assistant", load: () => import("./skills") },
  { id: "prompt", title: "Prompt inspector", brief: "Prompt", icon: "layers", group: "assistant", load: () => import("./prompt") },
  { id: "files", title: "Files", icon: "folder", group: "assistant", load: () => import("./files") },
  { id: "usage", title: "Usage", icon: "chart-column", group: "assistant", load: () => import("./usage") },
  { id: "config", title: "Configuration", brief: "Settings", icon: "settings", group: "system", load: () => import("./config") },
  { id: "channels", title: "Channels", icon: "smartphone", group: "system", load: () => import("./channels") },
  { id: "plugins", title: "Plugins and MCP", brief: "Plugins, MCP", icon: "puzzle", group: "system", load: () => import("./plugins") },
  { id: "security", title: "Security", icon: "shield", group: "system", load: () => import("./security") },
  { id: "logs", title: "Logs", icon: "scroll-text", group: "system", load: () => import("./logs") },
  { id: "doctor", title: "Doctor", icon: "stethoscope", group: "system", load: () => import("./doctor") },
  { id: "devices", title: "Devices", icon: "monitor-smartphone", group: "system", load: () => import("./devices") },
  { id: "team", title: "Team", icon: "users", group: "system", needs: "team.get", load: () => import("./team") },
  { id: "gallery", title: "Gallery", icon: "layers", group: "hidden", load: () => import("./gallery") },
];

export const GROUPS = [
  ["work", "Work"],
  ["assistant", "Assistant"],
  ["system", "System"],
] as const;
