// Unpack the page's data: by the browser's own stream, or where it has none by the code below.

async function unpack(base64) {
  const packed = bytesOf(base64);
  const bytes = "DecompressionStream" in globalThis ? await streamed(packed) : inflate(packed);
  return JSON.parse(new TextDecoder().decode(bytes));
}

function bytesOf(base64) {
  const letters = atob(base64);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i += 1) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

async function streamed(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// RFC 1950 and 1951: zlib's two bytes of header, then blocks of deflate.
const LENGTH_BASE = [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83,
  99, 115, 131, 163, 195, 227, 258];
const LENGTH_EXTRA = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5,
  5, 0];
const DISTANCE_BASE = [1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769,
  1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577];
const CODE_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

function inflate(packed) {
  const reader = { packed, place: 2, bits: 0, count: 0 };
  const out = { bytes: new Uint8Array(packed.length * 4 + 1024), length: 0 };
  let last = false;
  while (!last) {
    last = take(reader, 1) === 1;
    const kind = take(reader, 2);
    if (kind === 0) copyStored(reader, out);
    else if (kind === 1) expand(reader, out, ...fixedCodes());
    else if (kind === 2) expand(reader, out, ...readCodes(reader));
    else throw new Error("Expected a block of deflate, got one of an unknown kind.");
  }
  return out.bytes.subarray(0, out.length);
}

function take(reader, count) {
  while (reader.count < count) {
    reader.bits |= reader.packed[reader.place] << reader.count;
    reader.place += 1;
    reader.count += 8;
  }
  const value = reader.bits & ((1 << count) - 1);
  reader.bits >>>= count;
  reader.count -= count;
  return value;
}

function write(out, byte) {
  if (out.length === out.bytes.length) {
    const wider = new Uint8Array(out.bytes.length * 2);
    wider.set(out.bytes);
    out.bytes = wider;
  }
  out.bytes[out.length] = byte;
  out.length += 1;
}

function copyStored(reader, out) {
  take(reader, reader.count & 7); // to the next whole byte
  const length = take(reader, 16);
  take(reader, 16);
  for (let i = 0; i < length; i += 1) write(out, take(reader, 8));
}

// A code by canonical Huffman: how many codes there are of each length, and the symbols in order.
function codeOf(lengths) {
  const counts = new Uint16Array(16);
  for (const length of lengths) counts[length] += 1;
  counts[0] = 0;
  const starts = new Uint16Array(16);
  for (let i = 1; i < 16; i += 1) starts[i] = starts[i - 1] + counts[i - 1];
  const symbols = new Uint16Array(lengths.length);
  lengths.forEach((length, symbol) => {
    if (length) symbols[starts[length]++] = symbol;
  });
  return { counts, symbols };
}

function decode(reader, code) {
  let value = 0;
  let first = 0;
  let index = 0;
  for (let length = 1; length < 16; length += 1) {
    value |= take(reader, 1);
    const count = code.counts[length];
    if (value - count < first) return code.symbols[index + value - first];
    index += count;
    first = (first + count) << 1;
    value <<= 1;
  }
  throw new Error("Expected a code of deflate, got bits that are none.");
}

function fixedCodes() {
  const lengths = Array.from({ length: 288 }, (_, i) => (i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8));
  return [codeOf(lengths), codeOf(new Array(30).fill(5))];
}

function readCodes(reader) {
  const numLiterals = take(reader, 5) + 257;
  const numDistances = take(reader, 5) + 1;
  const numCodes = take(reader, 4) + 4;
  const codeLengths = new Array(19).fill(0);
  for (let i = 0; i < numCodes; i += 1) codeLengths[CODE_ORDER[i]] = take(reader, 3);
  const code = codeOf(codeLengths);
  const lengths = [];
  while (lengths.length < numLiterals + numDistances) {
    const symbol = decode(reader, code);
    if (symbol < 16) lengths.push(symbol);
    else if (symbol === 16) repeat(lengths, lengths.at(-1), 3 + take(reader, 2));
    else repeat(lengths, 0, symbol === 17 ? 3 + take(reader, 3) : 11 + take(reader, 7));
  }
  return [codeOf(lengths.slice(0, numLiterals)), codeOf(lengths.slice(numLiterals))];
}

function repeat(list, value, times) {
  for (let i = 0; i < times; i += 1) list.push(value);
}

function expand(reader, out, literals, distances) {
  for (;;) {
    const symbol = decode(reader, literals);
    if (symbol === 256) return;
    if (symbol < 256) {
      write(out, symbol);
      continue;
    }
    const length = LENGTH_BASE[symbol - 257] + take(reader, LENGTH_EXTRA[symbol - 257]);
    const far = decode(reader, distances);
    const extra = far < 2 ? 0 : (far >> 1) - 1;
    const distance = DISTANCE_BASE[far] + take(reader, extra);
    for (let i = 0; i < length; i += 1) write(out, out.bytes[out.length - distance]);
  }
}
