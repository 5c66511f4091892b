package main

// laws2And3: a body is written once, and its bytes pass through.
func laws2And3() []mutation {
	return []mutation{
		{
			law: "2", name: "a publish appends the body again", file: "store/halves.go",
			old: "err := j.operate(ops)", new: `for i := range ops {
		if v := ops[i].View; v != nil {
			if b, release, err := s.log.Read(v.Position, int(v.Size)); err == nil {
				_, _ = s.appendOwn(s.own.moved, b, false)
				release()
			}
		}
	}
	err := j.operate(ops)`,
			pkg: inStore, test: "TestLaw2AViewAddsNoBody", small: true,
		},
		{
			law: "2", name: "what is published past the view window names the old body", file: "store/bodies.go",
			old: "s.isOld(b, now, window)", new: "s.isOld(b, now-now, window)",
			pkg: inStore, test: "TestLaw2BodyOlderThanTheViewWindowIsAppendedAgain",
		},
		{
			law: "2", name: "every publish counts as past the view window", file: "store/bodies.go",
			old: "if now-p.time > window {", new: "if true {",
			pkg: inStore, test: "TestLaw2AViewAddsNoBody",
		},
		{
			law: "2", name: "a commit does not set PREPARED_TX_OFFSET", file: "store/view/view.go",
			old: "if r.prepared {", new: "if false {",
			pkg: inView, test: "TestLaw2CommitsAndDelaysReadAsRealBrokersStoreThem",
		},
		{
			law: "2", name: "a retry keeps the attempts of the stored record", file: "store/view/view.go",
			old: "Retry:  {reconsume: true, props", new: "Retry:  {props",
			pkg: inView, test: "TestLaw2RetriesAndDeadLettersReadAsRealBrokersStoreThem",
		},
		{
			law: "2", name: "a delay loses a property that RocketMQ leaves", file: "store/view/view.go",
			old: "Delay:  {},", new: "Delay:  {props: func(dst []byte, v record.View, _ *Show) []byte { return record.AppendWithout(dst, v.Properties(), PropRealTopic) }},",
			pkg: inView, test: "TestLaw2CommitsAndDelaysReadAsRealBrokersStoreThem", small: true,
		},
		{
			law: "2", name: "a delay sets the attempts as well", file: "store/view/view.go",
			old: "Delay:  {},", new: "Delay:  {reconsume: true},",
			pkg: inView, test: "TestLaw2ViewsChangeWhatThePageSays",
		},
		{
			law: "2", name: "a view keeps the store time of the stored record", file: "store/record/patch.go",
			old: "SetPlace(b, p.QueueOffset, p.PhysicalOffset, p.StoreTime)", new: "SetPlace(b, p.QueueOffset, p.PhysicalOffset, v.StoreTime())",
			pkg: inView, test: "TestLaw2CommitsAndDelaysReadAsRealBrokersStoreThem",
		},
		{
			law: "3", name: "the compression flags of a message that waits are dropped", file: "store/waiting.go",
			old: "w.Queue, w.Properties, w.SysFlag = id, props, m.SysFlag&^record.FlagTxMask", new: "w.Queue, w.Properties, w.SysFlag = id, props, 0",
			pkg: inStore, test: "TestLaw3BytesPassThroughTheStore", small: true,
		},
	}
}

// law4: acknowledged means kept.
func law4() []mutation {
	return []mutation{
		{
			law: "4", name: "the log is not synced", file: "store/log/flush.go",
			old: "if err := s.f.Sync(); err != nil {\n\t\t\treturn fmt.Errorf(\"sync segment", new: "if err := error(nil); err != nil {\n\t\t\treturn fmt.Errorf(\"sync segment",
			pkg: inStore, test: "TestLaw4WhatIsAnsweredIsOnTheDisk", small: true,
		},
		{
			law: "4", name: "metadata is renamed into place without a sync", file: "store/vfs/vfs.go",
			old: "if _, err = f.WriteAt(b, 0); err == nil {\n\t\terr = f.Sync()\n\t}", new: "_, err = f.WriteAt(b, 0)",
			pkg: inMeta, test: "TestLaw4AcknowledgedTopicsSurviveAPowerCut", args: "-rapid.nofailfile", small: true,
		},
		{
			law: "4", name: "the directory of metadata is not synced after the rename", file: "store/vfs/vfs.go",
			old: "return fsys.SyncDir(filepath.Dir(name))", new: "_ = filepath.Dir\n\treturn nil",
			pkg: inMeta, test: "TestLaw4AcknowledgedTopicsSurviveAPowerCut", args: "-rapid.nofailfile",
		},
		{
			law: "4", name: "a sync topic is answered before the sync", file: "store/log/append.go",
			old: "\t\tif p.sync {\n", new: "\t\tif p.sync && len(m.syncing) > 1<<30 {\n",
			pkg: inStore, test: "TestLaw4NothingIsVisibleBeforeItsDurability", small: true,
		},
		{
			law: "4", name: "a new segment has its name without a sync of the directory", file: "store/log/segment.go",
			old: "\t\t\t\terr = fsys.SyncDir(dir)\n", new: "",
			pkg: inStore, test: "TestLaw4WhatIsAnsweredIsOnTheDisk",
		},
		{
			law: "4", name: "an index file is renamed into place without a sync", file: "store/queue/seal.go",
			old: "\terr = f.Sync()\n\tif e := f.Close(); err == nil {", new: "\tif e := f.Close(); err == nil {",
			pkg: inQueue, test: "TestLaw4SealedSpansSurviveAPowerCut",
		},
		{
			law: "4", name: "a checkpoint is written before the log below it is synced", file: "store/checkpoint.go",
			old: "err := s.syncLog()\n", new: "err := error(nil)\n",
			pkg: inStore, test: "TestLaw4ACheckpointComesAfterTheSyncOfItsLog",
		},
		{
			law: "4", name: "a checkpoint names files that are not synced", file: "store/checkpoint.go",
			old: "err := c.pin.Sync()\n", new: "err := error(nil)\n",
			pkg: inStore, test: "TestLaw5WaitingMessagesSurvivePowerCutsOnceEach",
		},
		{
			law: "4", name: "a sync record is visible before the sync", file: "store/append.go",
			old: "l.queue.Put(it.QueueOffset, e, !it.Sync)", new: "l.queue.Put(it.QueueOffset, e, true)",
			pkg: inStore, test: "TestLaw4NothingIsVisibleBeforeItsDurability",
		},
		{
			law: "4", name: "a view in a sync topic is visible before the sync", file: "store/publish.go",
			old: "l.queue.Put(v.QueueOffset, e, !v.Hold)", new: "l.queue.Put(v.QueueOffset, e, true)",
			pkg: inStore, test: "TestLaw4NothingIsVisibleBeforeItsDurability",
		},
		{
			law: "4", name: "a group is told of a message before its sync", file: "store/dispatch.go",
			old: "if held && o.Address >= d.syncedPos.Load() || d.heldOf[o.Topic] > 0 {", new: "if d.heldOf[o.Topic] > 0 {",
			pkg: inStore, test: "TestLaw4NothingIsVisibleBeforeItsDurability",
		},
		{
			law: "4", name: "a message is found by key before its sync", file: "store/read.go",
			old: "if n == 1 && es[0].Address == at {", new: "if n == 0 {\n\t\t\t\tes[0] = queue.Entry{Address: at, Position: at, Size: v.Size(), Time: v.StoreTime()}\n\t\t\t}\n\t\t\tif es[0].Address == at {",
			pkg: inStore, test: "TestLaw4NothingIsVisibleBeforeItsDurability",
		},
		{
			law: "4", name: "a topic that asks for sync gets async", file: "store/append.go",
			old: "Sync: t.sync.Load(), Memory: t.memory.Load()}", new: "Memory: t.memory.Load()}",
			pkg: inStore, test: "TestLaw4NothingIsVisibleBeforeItsDurability",
		},
		{
			law: "4", name: "the end of a transaction does not wait for its sync", file: "store/halves.go",
			old: "sync = sync || t != nil && t.sync.Load()", new: "sync = sync && t != nil",
			pkg: inStore, test: "TestLaw5WaitingMessagesSurvivePowerCutsOnceEach",
		},
	}
}
