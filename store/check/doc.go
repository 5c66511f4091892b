// Package check verifies a store directory while no process has it open, and changes nothing in it. Start at [Run].
//
// It reads every record of the log with code of its own, every file of the queue index, and the configuration. Then it opens
// the directory twice as a store does, over files in memory that take what an opening writes ([vfs.Overlay]): with its snapshots
// and without them, the second time reading everything from the log again. The index has to say of every record what the record says,
// and nothing else; both states have to be equal.
//
// A directory that an Apache broker wrote and that was not opened by this program is checked in RocketMQ's own files: consume queues,
// extension units, key index, checkpoint.
package check
