/** Let the browser store a text as a file. */
export function saveFile(name: string, text: string): void {
  store(name, new Blob([text], { type: "text/plain" }));
}

/** Let the browser store bytes in base64; they are saved and never opened in this page. */
export function saveBytes(name: string, type: string, data: string): void {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  store(name, new Blob([bytes], { type: type || "application/octet-stream" }));
}

function store(name: string, blob: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
