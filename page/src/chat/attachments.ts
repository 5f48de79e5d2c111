// Files that go with a message: pictures as pictures, texts as a block of the message.
import type { Picture } from "../generated/wire";

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const MAX_PICTURES = 10;
const MAX_PICTURE_BYTES = 4_000_000;
const MAX_TEXT_BYTES = 200_000;

export interface Attachment {
  id: string;
  name: string;
  picture: Picture | null;
  text: string;
}

/** Read files; those that cannot be sent are named in `problem` and left out. */
export async function readFiles(given: File[], present: Attachment[]): Promise<{ files: Attachment[]; problem: string }> {
  const files = [...present];
  const problems: string[] = [];
  for (const file of given) {
    const pictures = files.filter(({ picture }) => picture).length;
    const isPicture = PICTURES.has(file.type);
    if (isPicture && pictures >= MAX_PICTURES) problems.push(`Only ${MAX_PICTURES} pictures fit into one message.`);
    else if (isPicture && file.size > MAX_PICTURE_BYTES) problems.push(`${file.name} is larger than 4 MB.`);
    else if (!isPicture && file.size > MAX_TEXT_BYTES) problems.push(`${file.name} is larger than 200 KB.`);
    else if (isPicture) files.push({ ...named(file), picture: await readPicture(file), text: "" });
    else {
      const text = await readText(file);
      if (text === null) problems.push(`${file.name} is neither a picture nor a text.`);
      else files.push({ ...named(file), picture: null, text });
    }
  }
  return { files, problem: problems.join(" ") };
}

function named(file: File): { id: string; name: string } {
  return { id: `${file.name}-${file.size}-${file.lastModified}-${Math.random()}`, name: file.name || "pasted picture" };
}

async function readPicture(file: File): Promise<Picture> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let binary = "";
  for (let at = 0; at < bytes.length; at += 32_768) binary += String.fromCharCode(...bytes.subarray(at, at + 32_768));
  return { mediaType: file.type, data: btoa(binary) };
}

async function readText(file: File): Promise<string | null> {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

/** The message with the text files as blocks of code, each under its name. */
export function withFiles(message: string, files: Attachment[]): string {
  const blocks = files.flatMap(({ name, text, picture }) => {
    if (picture) return [];
    const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
    const fence = "`".repeat(longest + 1);
    return [`File \`${name.replaceAll("`", "'")}\`:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`];
  });
  const whole = [message, ...blocks].filter(Boolean).join("\n\n");
  return whole || "See the picture.";
}
