// Files that an answer sends: pictures are shown, other files are offered for download.
import { useState } from "preact/hooks";
import { attempting, call } from "../core/gateway";
import { saveBytes } from "../core/save_file";
import { shorten } from "../core/text";
import { Button } from "../parts/button";
import { Icon } from "../parts/icon";
import { PictureView } from "./calls";
import type { ShownPicture } from "./content";
import { thread } from "./thread";

const PICTURE = /\.(png|jpe?g|gif|webp)$/i;

export function SentFiles({ paths }: { paths: readonly string[] }) {
  return (
    <ul class="sent-files" aria-label="Files">
      {paths.map((path) => (
        <li key={path}>{/^https?:/i.test(path) ? <Address address={path} /> : <SentFile path={path} />}</li>
      ))}
    </ul>
  );
}

/** An address is shown and not loaded: what it shows, and that it was opened, is known to its server. */
function Address({ address }: { address: string }) {
  return (
    <a class="sent-file" href={address} target="_blank" rel="noopener noreferrer">
      <Icon name="external-link" /> <bdi>{shorten(address, 120)}</bdi>
    </a>
  );
}

function SentFile({ path }: { path: string }) {
  const [picture, setPicture] = useState<ShownPicture | null>(null);
  const name = path.split("/").at(-1) || path;
  const isPicture = PICTURE.test(name);
  const open = () =>
    attempting(async () => {
      const file = await call("sessions.file", { sessionKey: thread.key.value, path });
      if (isPicture) setPicture({ type: file.mediaType, data: file.data });
      else saveBytes(file.name, file.mediaType, file.data);
    });
  if (picture) return <PictureView picture={picture} />;
  return (
    <Button class="sent-file" icon={isPicture ? "image" : "download"} onClick={open} title={isPicture ? "Show it" : "Download it"}>
      <bdi>{shorten(name, 80)}</bdi>
    </Button>
  );
}
