// Changing single keys of the configuration from other views than the configuration itself.
import { call } from "./gateway";

/** Store keys with their values; undefined restores a default. Refused if the file changes at the same moment. */
export async function changeSettings(changes: Record<string, unknown>): Promise<void> {
  const { hash } = await call("config.get", { key: "gateway.port" });
  const list = Object.entries(changes).map(([key, value]) => (value === undefined ? { key, unset: true } : { key, value }));
  await call("config.patch", { baseHash: hash, changes: list });
}
