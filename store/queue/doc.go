// Package queue is the queue index: for every topic and queue the sequence of its entries.
//
// Start with [Open] and [Index.Queue]. One writer gives the index every record of the log in log order with [Queue.Put];
// any number of readers use [Queue.Read] and the searches beside it, without a lock. The index never reads the log: what
// it does not hold after Open is put again by the caller, from the position that [Index.Resume] names.
//
// # Generations and spans
//
// Entries are kept by spans of the log. The newest spans are in memory, as generations; when one has
// [Config].SpanBytes of log or [Config].SpanEntries entries, the next begins. A finished generation is written as one
// file, sorted by queue, and dropped from memory, both in the background and without waiting for the disk. When the log
// of the span is on the disk, the file is synced and gets its name. So memory is bounded by the span limits, however many
// messages and queues there are and however slow the disk is, and a start reads two directories instead of every queue.
//
// A short span, which a clean stop writes, is taken back into memory by Open and written again under the same name when it
// is full, so restarts do not leave crumbs.
//
// # Order
//
// Addresses grow along a queue, and a span holds exactly the entries with addresses in [start, end). Searches compare
// addresses and never body positions, which are not in order (design: rules of views).
//
// # File format
//
// <dir>/<start position, 20 digits>.idx, little-endian, checksums are CRC-32C:
//
//	header, 64 bytes
//	 0  8  magic "FMQIDX" 0x00, version 1
//	 8  8  start: log position of the first byte the span speaks for
//	16  8  end: first log position behind it, the start of the next span
//	24  4  entries
//	28  4  queues
//	32  4  topics
//	36  4  bytes of names
//	40  4  entries in a page: 128
//	44  8  size of the file
//	52  4  checksum of everything behind the entries
//	56  4  0
//	60  4  checksum of bytes 0..59
//	entries, 32 bytes each, by topic name, queue, queue offset
//	 0  8  address        8  8  position      16  8  publish time
//	24  4  size          28  4  tags code, sign-extended when it is read
//	page sums, 4 bytes for each page of 128 entries: checksum of the page
//	queues, 40 bytes each, by topic name and queue; every queue that had an entry below end, also without one in the span
//	 0  4  queue id       4  4  entries in the span
//	 8  8  queue offset of the first of them, or of the next one to come
//	16  4  index of the first one in the file
//	20  4  0
//	24  8  first queue offset that could be read when the span was written
//	32  8  address of the newest entry below end
//	topics, 16 bytes each, by name
//	 0  4  start of the name   4  4  its length   8  4  index of the first queue   12  4  number of queues
//	names, without separators
//
// A file is written as <name>.tmp, and later synced and renamed; then the directory is synced. A start removes .tmp files. The checksum of the header is checked
// at open, that of the directory (everything behind the entries) at its first use, that of a page when it is first read.
// A damaged file is removed when it is noticed, and the next start builds the span again from the log.
package queue
