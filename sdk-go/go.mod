module github.com/fusionmq/fusionmq/sdk-go

go 1.26.0

require (
	github.com/fusionmq/fusionmq/metaq v0.0.0
	github.com/fusionmq/fusionmq/notify v0.0.0
	github.com/fusionmq/fusionmq/store v0.0.0
)

require (
	github.com/klauspost/compress v1.20.4 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)

replace (
	github.com/fusionmq/fusionmq/metaq => ../metaq
	github.com/fusionmq/fusionmq/notify => ../notify
	github.com/fusionmq/fusionmq/store => ../store
)
