package store

import "path/filepath"

// Every name on disk, relative to the store directory. The first block is RocketMQ's; the second is ours and ignored by it.
const (
	logDir    = "commitlog"
	configDir = "config"
	abortName = "abort" // there while the store is open; its content is the process id, as RocketMQ writes it
	lockName  = "lock"

	ownDir         = "fusionmq"
	bitsDir        = "bits"       // in ownDir
	indexDir       = "index"      // in ownDir
	keysDir        = "keys"       // in ownDir
	stateDir       = "state"      // in ownDir
	adoptDir       = "adopt"      // in ownDir: of a take-over, while it goes on
	checkpointName = "checkpoint" // in ownDir
)

// SyncedName is the file in config/ that says how far the log was synced once.
const SyncedName = "fusionmq.synced"

// LevelsName is the file in config/ that says which delays the delay levels had where in the log.
const LevelsName = "fusionmq.levels"

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.o.Dir}, parts...)...)
}

// Topics of RocketMQ in which messages wait that are in no queue of their own topic yet. Only the store writes them.
const (
	HalfTopic     = "RMQ_SYS_TRANS_HALF_TOPIC"   // transactions
	ScheduleTopic = "SCHEDULE_TOPIC_XXXX"        // delayed by a level, which is the queue id plus one
	TimerTopic    = "rmq_sys_wheel_timer"        // delayed to a time
	AsideTopic    = "TRANS_CHECK_MAX_TIME_TOPIC" // views of transactions that nobody answers for; it can be read
)

// Topics of records that only the store writes; SystemPrefix is how all of them begin.
const (
	SystemPrefix = "rmq_sys_fusion_"
	OQTopic      = SystemPrefix + "oq"     // operate-queue records
	MovedTopic   = SystemPrefix + "moved"  // whole records that were still owed when their segment went
	StateTopic   = SystemPrefix + "state"  // state whose last record was in a segment that went
	ExpiryTopic  = SystemPrefix + "expiry" // what was deleted before a group had read it
)
