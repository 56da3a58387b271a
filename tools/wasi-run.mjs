// Runs a wasm32-wasip1 program under node: node wasi-run.mjs PROGRAM.wasm [ARGS...]
// (cargo's runner for the tests of the pure code; the working directory is readable as itself)
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const [program, ...args] = process.argv.slice(2);
const wasi = new WASI({
  version: "preview1",
  args: [program, ...args],
  env: { ...process.env, RUST_BACKTRACE: "0" },
  preopens: { [process.cwd()]: process.cwd(), ".": process.cwd() },
});
const module = await WebAssembly.compile(await readFile(program));
const instance = await WebAssembly.instantiate(module, wasi.getImportObject());
process.exitCode = wasi.start(instance);
