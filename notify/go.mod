module github.com/fusionmq/fusionmq/notify

go 1.26.0

require github.com/fusionmq/fusionmq/store v0.0.0

require (
	github.com/google/go-cmp v0.7.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)

replace github.com/fusionmq/fusionmq/store => ../store
