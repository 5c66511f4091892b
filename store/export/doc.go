// Package export writes a plain RocketMQ store directory from one of ours, for the way back to an Apache broker. Start at [Run].
//
// The log is written anew in the order of addresses: every message is a record in its topic, where ours has a view (a committed
// transaction, a delayed or returned message) as a record of its own, and records of our own topics are left out. Queue offsets stay; positions, and
// with them offset message ids, stay when the directory had nothing but plain messages. Consume queues are complete. Undecided transactions
// are in RocketMQ's topic for them with marks for those that were decided; delays are in its topics, with the offsets from which the
// broker goes on. Topics, groups and offsets are copied.
//
// What RocketMQ cannot hold becomes what comes next to it: a push group gets committed offsets at the first message that it is still
// owed, so it gets some messages again, never loses one; what waits for a retry of a push group is in its topic's queue behind those offsets.
package export
