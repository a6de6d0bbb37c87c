// Package batch is the one unit of wire, write-ahead log, warm and cold tier:
// a fixed header of [HeaderSize] bytes and a body of messages. The producer
// encodes a batch once; the broker stamps its own header fields in place and
// never touches the body again.
//
// All integers are little-endian, all CRCs are CRC-32C. The header:
//
//	 0  u32  total length, header included            producer
//	 4  u32  CRC of the header but for this field     broker (the producer's own on the way in)
//	 8  u64  base offset                              broker
//	16  u64  epoch (history in its high 16 bits)      broker
//	24  i64  append time, ms since 1970               broker
//	32  u32  synced back: base offset minus the       broker
//	         offset up to which the log was synced
//	         when this was written (saturating)
//	36  u32  session                                  producer
//	40  u64  producer id                              producer
//	48  u64  base sequence                            producer
//	56  u32  message count                            producer
//	60  u16  attributes (see [Attributes])            producer
//	62  u16  format version                           producer
//	64  u32  CRC of the body                          producer
//	68  u32  body length when not compressed          producer
//
// The body (v is a zigzag varint, u a plain one, as in encoding/binary):
//
//	u      bytes of the table
//	v      base publish time, ms since 1970
//	table  a row for each message:
//	         u    record length << 2 | has deliver-at << 1 | has key
//	         u    key length, and the key           when it has one
//	         v    deliver-at, ms since 1970         when it has one
//	         u32  CRC of key (with its length) and deliver-at as they
//	              stand in the row, if any, and then of the record
//	block  the records one after another, compressed as one or not:
//	         v    publish time minus base publish time, ms
//	         u    schema id, 0 for none
//	         u    number of properties, at most 4,096, then u length and bytes of name and value each
//	         rest payload
//
// Message i of a batch has offset base + i. A control batch ([Control]) has no
// body and takes no offset. A part ([Part]) is what a broker sends of a batch
// when a consumer gets only some of its messages: each of its rows begins with
// u, the index of the message in its batch, and goes on as the producer wrote
// it; its block is never compressed; count, lengths and body CRC are the part's
// own. The row CRCs, which are the producer's, vouch for its messages.
//
// Nothing here allocates what a length field claims before the claim was
// checked against the bytes at hand and the [Limits].
package batch
