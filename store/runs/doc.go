// Package runs keeps an ordered map of small rows, as many as there may be, in sorted files and a bounded tail in memory.
//
// Start with [Open]. [Table.Put] and [Table.Delete] change the tail; when it has [Config].TailRows rows it is written as one
// file, a run, and a new tail begins. A row that was deleted is a row that says so, until the oldest run has it. Runs are merged in the
// background, so that there are about log2 of them in the number of rows. Reading looks at the tail and the runs, newest first.
//
// What is on the disk is a view: nothing in it is synced until [Pin.Sync], and only runs that a pin names are needed again. [Table.Snapshot]
// says which these are and what the tail has; [Table.Restore] takes that back in a new process, and [Table.Clean] removes all other
// files. A file that a pin or a reader needs stays until they let go of it.
//
// [Table.View] is all of it as of one moment, for those who read for long.
//
// Put, Delete, Restore, Snapshot and Close need the table for themselves; Get, Scan and View may run beside each other. Merging, and
// reading a View, go on beside everything.
//
// # File format
//
// <dir>/<number, 20 digits>.run, little-endian, checksums are CRC-32C:
//
//	header, 64 bytes
//	 0  8  magic "FMQRUN" 0x00, version 1
//	 8  8  number of the file
//	16  8  rows
//	24  4  rows in a page: 128
//	28  4  bytes of a row: 57
//	32  8  size of the file
//	40  4  checksum of the first keys
//	44  4  checksum of the checksums of all pages
//	48 12  0
//	60  4  checksum of bytes 0..59
//	pages: 128 rows, the last one fewer, and a checksum of 4 bytes each
//	first keys, 24 bytes each: that of every page
//
//	row, ascending by key
//	 0  1  1 a row, 2 a deleted one
//	 1 24  key     25 32  value; zeros for a deleted one
//
// The header and the first keys are checked when the file is opened, a page each time that it is read. A damaged file is removed when
// it is noticed, and the next start makes all of it again from the log.
package runs
