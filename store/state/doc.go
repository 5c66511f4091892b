// Package state is the push state of the store: what each group is owed of each message, as the messages and the
// operate-queue records of the log have made it.
//
// Start with [Machine]. It is fed the log in order: [Machine.Message] for each record of a topic that the [Exchange] is
// interested in, [Machine.Apply] for each operate-queue record. It has no clock, no disk and no goroutine, so the same
// log gives the same state, whether it is read at once, piece by piece, or from a snapshot on. [AppendOps] and
// [DecodeOps] are the body of an operate-queue record.
//
// # What is owed
//
// A group is attached to a topic or not, and the log position of the attach and detach records decides. A message above
// the attach record is owed by the data queue: it has a share in the window of its topic until it is deleted, retired, or
// moved to the group's retry line. A message below it is owed by the group's cursor, which costs nothing per message: it
// is the range from [GroupPosition].Cursor to Attach, or to the end of the log when detached, without what lies between
// SkipFrom and SkipTo. So each message is owed to a group exactly once.
//
// Removing a binding ends what later messages owe. Shares that exist stay (ruling M33), and the cursor goes on through
// the bindings that held at each message's position, which is why bindings that have ended are kept, in the state and in
// snapshots, until the cursor has passed their end.
//
// Operations that come late, twice, or name what is not there change nothing and are counted ([Stats].Ignored). One is
// taken on trust: a failure of a message below the attach record, since the cursor may have read it. A repeat is better
// than a loss.
//
// # What waits
//
// Half messages, delayed messages, what pull groups have sent back, outcomes of transactions for a while, and the retries of
// push groups are rows of a [Table]: two a piece, one by address and one by due time, so that all of it can be on disk. A retry
// line is all retries of one group and topic; lines are read merged, or one by one by those who give topics priority.
//
// An [OpPublish] shows a message at another place and ends what waited. Its own place in the log is the address of what it
// shows. A half that is committed or rolled back is an outcome from then on, so the same end again can be told from another
// one; outcomes are forgotten by the store times of later records.
//
// # Memory
//
// The window holds 24 bytes a message and one copy of each set of groups. It is bounded because groups that fall behind
// are detached. What waits takes the memory of the table.
//
// # Operate-queue record
//
// An ordinary record of topic rmq_sys_fusion_oq, queue 0. Its body, with all numbers as varints (encoding/binary):
//
//	version              1 byte, 1
//	strings              count, then length and bytes of each: topics, groups and expressions of the record
//	operations           count, then of each
//	  kind               1 byte, OpKind
//	  delete             topic, first, last - first
//	  update             topic, first, count, then of each: group, attempt, due
//	  retire             topic, group, first, last - first + 1 or 0 when last is 0
//	  bind, unbind       topic, group, binding kind (1 byte), expression, water mark + 1, flags (bit 0 volatile)
//	  attach, detach     topic, group
//	  cursor             topic, group, first
//	  relocate           topic, first, last - first, size
//	  publish            fixed width, little-endian: view kind 1 (bit 7: short), queue offset 6, back 3; then topic, group (retry and
//	                     dead letter only), first; unless short: view topic, reconsume, level; queue, position - first (signed),
//	                     size, tags code (signed)
//	  rollback, cancel   topic, first, last - first
//	  check              topic, first, checks, due
//	  return             topic, group, first, position - first (signed), size, attempts, due, level
//	  defer              topic, first, due
//	  adopt              two bytes 0
//	  hold               topic, first, position - first (signed), size, attempts, due, kind
//
// Topics, groups and expressions are numbers of strings. Down to relocate, first is the signed difference to the first before
// it in the record (0 at its start), so that a batch of neighbours takes two or three bytes an operation; from publish on it is
// written as it is. The body of a record with one publish alone can have a shorter form, see appendLone. A version or kind that is not known is an error, never skipped.
//
// # Snapshot
//
// "FMQSTATE", version 3 (1 byte), length of the next part (4 bytes, little-endian); as varints: the address up to which the log is in it, the
// newest store time, groups, topics with their bindings, positions and window, retry lines, counts; then what waits, one by one or, in a
// checkpoint, as the table saves it; CRC-32C of all before it (4 bytes, little-endian). [Machine.Freeze] takes a state as of one moment, which is
// written while the machine goes on; neither writing nor reading one holds what waits in memory.
package state
