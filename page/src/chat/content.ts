// The content of messages in the format of events and of transcripts.

export interface ShownPicture {
  type: string;
  data: string;
}

export interface Content {
  text: string;
  pictures: ShownPicture[];
}

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** The parts of a message; old transcripts have a plain text instead. */
export function partsOf(content: any): any[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : (content ?? []);
}

export function contentOf(parts: any): Content {
  const list = partsOf(parts);
  const pictures = list.filter((part) => part.type === "image");
  return {
    text: list
      .filter((part) => part.type === "text")
      .map((part) => part.text)
      .join(""),
    pictures: pictures.map((part) => ({ type: part.mediaType ?? part.mimeType ?? "", data: part.data ?? "" })),
  };
}

/** The address of a picture inside the page; null if its type is not shown. */
export function pictureAddress({ type, data }: ShownPicture): string | null {
  return PICTURES.has(type) ? `data:${type};base64,${data.replace(/[^A-Za-z0-9+/=]/g, "")}` : null;
}
