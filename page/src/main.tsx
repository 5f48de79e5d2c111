import { render } from "preact";
import { App } from "./app";
import { start } from "./core/gateway";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/layout.css";
import "./styles/chat.css";
import "./styles/views.css";

render(<App />, document.getElementById("app")!);
start();
