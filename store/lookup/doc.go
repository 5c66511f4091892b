// Package lookup is the key index: which messages of a topic have a key.
//
// Start with [Open] and [Index.Query]. An entry is a hash of topic and key, the address of the message and its publish time;
// [Keys] gives the hashes of a record. The index follows the log on a goroutine of its own, told by [Index.Advance] what may
// have keys, and reads the log through Config.Scan, so an append pays next to nothing for it. A query says how far the index was.
//
// What it promises: every key below [Index.Position] is found, newest first. What it does not: an answer is a candidate. Another
// key may have the same hash, the message may be deleted by now or not visible yet, so whoever asks looks at the record.
//
// # Runs
//
// The newest entries are in memory, at most Config.Entries of them. When these are full they become a run: an immutable file
// that speaks for a part of the log, sorted by hash. Eight neighbours of about one size become one, so that an index of any size
// has a few dozen. A run is made durable under its name when the log of its part is on the disk. Runs are read a page at
// a time and never mapped: a query costs a page of the bloom filter for each run, and two more where the key is.
//
// Memory is that of the newest entries, whatever the number of keys; a run adds a number for 100,000 keys.
//
// The index is a function of the log: a part that no run speaks for, because its file is missing or turned out to be damaged, is
// read again in the background, the newest part first, while queries go on.
//
// # File format
//
// <dir>/<start, 20 digits>-<end, 20 digits>.keys, little-endian, pages of 4096 bytes whose last 4 are the CRC-32C of the rest:
//
//	page 0: header
//	 0  8  magic "FMQKEY" 0x00, version 1
//	 8  8  start: first log position that the run speaks for    16  8  end: first one behind it
//	24  8  entries                                              32  8  blocks of the bloom filter
//	40  8  oldest publish time in it, ms since 1970             48  8  newest publish time
//	bloom pages: 63 blocks of 64 bytes each
//	entry pages: 204 entries of 20 bytes each, by hash, then newest address first
//	 0  8  hash     8  6  address - start    14  6  publish time, ms since 1970, cut to 0..2^48-1
//	fence pages: 511 numbers of 8 bytes each: the first hash of every entry page
//
// The block of a hash h is the high half of the 128-bit product h * blocks; its bits are the six lowest groups of 9 bits of
// h * 0x9E3779B97F4A7C15.
package lookup
