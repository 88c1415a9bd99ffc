// Browsers start no workers for a page that was opened from a folder: there the search runs in a hidden frame.
// The name of this file tells Material's offline plugin that it need not load such a thing from elsewhere.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.documentElement.appendChild(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.tell = (data) => inside.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      script.onload = () => { const told = this.waiting; this.waiting = null; told.forEach(this.tell); };
      script.src = url;
      frame.contentDocument.head.appendChild(script);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data); else this.tell(data);
    }

    terminate() {}
  };
}
