// Binary messages: the length of the JSON, the JSON, and compressed label planes (live.py).

export async function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const packed = new Blob([new Uint8Array(buffer, 4 + length)]).stream();
  const stream = packed.pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = bytes.length / head.planes;
  const planes = Array.from({ length: head.planes }, (_, i) => bytes.subarray(i * size, (i + 1) * size));
  return { head, planes };
}
