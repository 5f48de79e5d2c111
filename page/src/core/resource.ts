// What a view reads from the gateway: loading, data, problem, and again after an event or a new connection.
import { useEffect, useState } from "preact/hooks";
import type { Methods } from "../generated/wire";
import { call, isOnline, listen } from "./gateway";
import { LinkLost, type MethodName } from "./link";

export interface Resource<T> {
  data: T | null;
  problem: string;
  isLoading: boolean;
  reload: () => Promise<void>;
}

/** The result of a method; null parameters read nothing. `events` are those after which it is read again. */
export function useMethod<M extends MethodName>(
  method: M,
  params: Methods[M]["params"] | null = {},
  events: readonly string[] = [],
): Resource<Methods[M]["result"]> {
  const asked = params === null ? null : JSON.stringify(params);
  const [state, setState] = useState<{ asked: string | null; data: any; problem: string; isLoading: boolean }>({
    asked: null,
    data: null,
    problem: "",
    isLoading: true,
  });
  const online = isOnline.value;
  const read = async (isCurrent: () => boolean) => {
    if (asked === null) return;
    setState((old) => ({ ...old, isLoading: true }));
    try {
      const data = await call(method, JSON.parse(asked));
      if (isCurrent()) setState({ asked, data, problem: "", isLoading: false });
    } catch (error) {
      if (!isCurrent()) return;
      const problem = error instanceof LinkLost ? "" : (error as Error).message;
      setState((old) => ({ ...old, problem, isLoading: !problem }));
    }
  };
  useEffect(() => {
    let isMounted = true;
    const isCurrent = () => isMounted;
    if (online) void read(isCurrent);
    const forget = listen(({ event }) => {
      if (events.includes(event)) void read(isCurrent);
    });
    return () => {
      isMounted = false;
      forget();
    };
  }, [method, asked, online, events.join()]);
  return { data: state.data, problem: state.problem, isLoading: state.isLoading, reload: () => read(() => true) };
}
