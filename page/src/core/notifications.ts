// Notifications of the browser, if the person wants them and the page is not in front.
import { notifies } from "./preferences";

export async function allowNotifications(): Promise<boolean> {
  if (!("Notification" in window)) return false;
  notifies.value = (await Notification.requestPermission()) === "granted";
  return notifies.value;
}

export function notify(title: string, body: string): void {
  if (!notifies.value || document.visibilityState === "visible") return;
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  try {
    new Notification(title, { body, tag: title, icon: "icon.svg" });
  } catch {
    // Some phones allow notifications only from a service worker.
  }
}
