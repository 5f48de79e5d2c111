import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { defineConfig } from "vite";

const OUT = new URL("dist/", import.meta.url);

/** Writes a compressed copy beside each file, which the gateway sends to browsers that take it. */
const compress = {
  name: "compress",
  closeBundle() {
    for (const name of readdirSync(OUT, { recursive: true })) {
      if (!/\.(html|js|css|svg)$/.test(name)) continue;
      const place = new URL(name, OUT);
      writeFileSync(new URL(`${name}.gz`, OUT), gzipSync(readFileSync(place), { level: 9 }));
    }
  },
};

// Relative addresses, because the page may live under a path. No polyfill is injected: the content policy allows no
// inline script.
export default defineConfig({
  base: "./",
  plugins: [compress],
  build: {
    outDir: "dist",
    assetsDir: "page",
    target: "es2023",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    manifest: "manifest.json",
  },
});
