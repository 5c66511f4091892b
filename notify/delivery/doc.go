// Package delivery decides which machine gets which message, when, and what becomes of it.
//
// Three machines without sockets, clock or disk; time is passed in and connections are behind [Conn]:
//
//   - [Group] is one subscriber group: its members (connections), for each topic a [Stream] of first deliveries, the
//     retries that are due, what is posted and not answered, and the timeouts. Nothing in it knows another group.
//   - [Ledger] puts the outcomes of all groups together: which messages are done for everybody, which targets failed.
//     It turns them into operate-queue entries, in ranges where it can.
//   - the ladder ([Backoff]) says when a failed target is tried again.
//
// What is owed is never only in memory. A message of an attached group is in the store's window until the ledger's
// operation is written; one that a detached group reads is at or above its cursor; a failed one is in a retry line.
// So a crash at any moment loses nothing, and what is delivered again is what was not answered or whose operation was
// not written yet.
//
// A Group is not safe for concurrent use: the service holds one lock for each. A Ledger has its own lock, which is
// taken after a group's, never before.
package delivery
