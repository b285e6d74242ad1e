/* Turns what a browser has recorded into a WAV file of 16-bit samples at 16 kHz, with one channel. */

const RATE = 16_000;
const HEADER_BYTES = 44;

export async function asWav(recorded) {
  const sound = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(recorded);
  return new Blob([header(sound.length), samples(sound)], { type: "audio/wav" });
}

function samples(sound) {
  const channels = Array.from({ length: sound.numberOfChannels }, (_, number) => sound.getChannelData(number));
  const mean = (at) => channels.reduce((sum, channel) => sum + channel[at], 0) / channels.length;
  return Int16Array.from({ length: sound.length }, (_, at) => 32_767 * Math.max(-1, Math.min(1, mean(at))));
}

function header(length) {
  const view = new DataView(new ArrayBuffer(HEADER_BYTES));
  const write = (at, text) => [...text].forEach((letter, n) => view.setUint8(at + n, letter.charCodeAt(0)));
  write(0, "RIFF");
  view.setUint32(4, HEADER_BYTES - 8 + 2 * length, true);
  write(8, "WAVEfmt ");
  view.setUint32(16, 16, true); // bytes of this part
  view.setUint16(20, 1, true); // whole numbers
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, RATE, true);
  view.setUint32(28, 2 * RATE, true); // bytes per second
  view.setUint16(32, 2, true); // bytes per sample
  view.setUint16(34, 16, true); // bits per sample
  write(36, "data");
  view.setUint32(40, 2 * length, true);
  return view;
}
