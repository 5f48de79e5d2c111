// The parts of the page with their states, for tests and developers.
import { useState } from "preact/hooks";
import { MarkdownView } from "../chat/messages";
import { openPanel } from "../core/panel";
import { Avatar, Badge, Meter, Tabs, Time } from "../parts/bits";
import { Button, IconButton } from "../parts/button";
import { confirm } from "../parts/dialog";
import { Diff } from "../parts/diff";
import { Field, SearchField, Select, Toggle } from "../parts/field";
import { Icon } from "../parts/icon";
import { Menu } from "../parts/menu";
import { EmptyState, ErrorCard, NoRight, Skeleton } from "../parts/states";
import { View } from "../parts/view";

export default function GalleryView() {
  const [text, setText] = useState("");
  const [tab, setTab] = useState("one");
  const [isOn, setOn] = useState(true);
  const [choice, setChoice] = useState("a");
  const options = [["a", "First"], ["b", "Second"]] as const;
  return (
    <View title="Gallery" about="Every part with its states.">
      <section class="card stack" aria-label="Buttons">
        <div class="row wrap">
          <Button kind="primary">Primary</Button>
          <Button icon="plus">Plain</Button>
          <Button kind="quiet">Quiet</Button>
          <Button kind="danger">Danger</Button>
          <Button kind="danger-quiet">Careful</Button>
          <Button disabled>Disabled</Button>
          <IconButton icon="bell" label="With a count" badge={3} />
          <Menu label="A menu" items={() => [{ icon: "check", text: "An action", act: () => {} }]}>
            <Icon name="ellipsis" />
          </Menu>
          <Button onClick={() => void confirm("Really?", "This is only an example.", "Yes")}>Ask</Button>
          <Button onClick={() => openPanel("An example", () => <p>The panel shows one detail.</p>)}>Panel</Button>
        </div>
      </section>
      <section class="card stack" aria-label="Fields">
        <Field label="A field" value={text} onInput={setText} hint="Something about it" />
        <Field label="A wrong field" value="wrong" onInput={() => {}} problem="This is no number. Use 3, for example." />
        <SearchField label="Search something" value={text} onInput={setText} />
        <Select label="A choice" value={choice} options={options} onChange={setChoice} />
        <Toggle label="A switch" checked={isOn} onChange={setOn} />
        <Tabs label="Tabs" tabs={[["one", "One"], ["two", "Two"]]} current={tab} onChange={setTab} />
      </section>
      <section class="card stack" aria-label="Facts">
        <div class="row wrap">
          <Badge>plain</Badge>
          <Badge tone="ok">ok</Badge>
          <Badge tone="warn">warn</Badge>
          <Badge tone="danger">danger</Badge>
          <Badge tone="accent">accent</Badge>
          <Meter label="Context" value={41} max={100} />
          <Meter label="Budget" value={95} max={100} />
          <Time when={Date.now() - 180_000} />
          <Avatar name="Fennel" />
          <Avatar name="Fox" emoji="🦊" />
        </div>
        <Diff before={"one\ntwo\nthree"} after={"one\n2\nthree\nfour"} label="Changed lines" />
      </section>
      <section class="card stack" aria-label="States">
        <Skeleton lines={3} />
        <EmptyState icon="inbox" title="Nothing here yet" action={<Button kind="primary">Begin</Button>}>
          This says what the place is for.
        </EmptyState>
        <ErrorCard problem="The disk is full. Delete something, then try again." retry={() => {}} />
        <NoRight scope="admin" />
      </section>
      <section class="card stack" aria-label="Markdown">
        <Field label="Markdown source" value={text} onInput={setText} rows={4} mono />
        <div id="markdown">
          <MarkdownView text={text} />
        </div>
      </section>
    </View>
  );
}
