module github.com/fusionmq/fusionmq/notify

go 1.26.0

require github.com/fusionmq/fusionmq/store v0.0.0

require google.golang.org/protobuf v1.36.12 // indirect

replace github.com/fusionmq/fusionmq/store => ../store
