package store

import "path/filepath"

// Every name on disk, relative to the store directory. The first block is RocketMQ's; the second is ours and ignored by it.
const (
	logDir    = "commitlog"
	configDir = "config"
	abortName = "abort" // there while the store is open; its content is the process id, as RocketMQ writes it
	lockName  = "lock"

	ownDir         = "fusionmq"
	indexDir       = "index"      // in ownDir
	checkpointName = "checkpoint" // in ownDir
)

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.o.Dir}, parts...)...)
}

// OQTopic is the topic of operate-queue records. SystemPrefix is how all topics begin that only the store writes.
const (
	SystemPrefix = "rmq_sys_fusion_"
	OQTopic      = SystemPrefix + "oq"
)
