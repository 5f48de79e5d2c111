import { KEYS, showsHelp } from "../core/keyboard";
import { Dialog } from "../parts/dialog";

export function KeyboardHelp() {
  return (
    <Dialog title="Keys" onClose={() => (showsHelp.value = false)}>
      <dl class="keys">
        {KEYS.map(([key, about]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{about}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
