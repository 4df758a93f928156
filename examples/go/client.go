// Inserts a query, publishes a post and prints the match: go run . [HOST:PORT]
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "example.org/ps2stream-client/ps2stream/v1"
)

//go:generate buf generate ../../protos

func main() {
	server := append(os.Args, "localhost:7077")[1]
	conn := must(grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := pb.NewPubSubClient(conn)

	lon, lat, km := -0.12, 51.5, 30.0
	near := &pb.Region{Shape: &pb.Region_Circle{Circle: &pb.Circle{Lon: &lon, Lat: &lat, RadiusKm: &km}}}
	query := &pb.Query{Id: "thames", Expression: "flood AND severity >= 3", Region: near, Session: "go"}
	must(client.InsertQuery(ctx, &pb.InsertQueryRequest{Query: query}))
	severity := &pb.AttributeValue{Value: &pb.AttributeValue_Integer{Integer: 4}}
	attributes := &pb.Attributes{Values: map[string]*pb.AttributeValue{"severity": severity}}
	post := &pb.Object{Id: "1", Lon: &lon, Lat: &lat, Text: "Flood by the river!", Attributes: attributes}
	must(client.Publish(ctx, &pb.PublishRequest{Batch: &pb.ObjectBatch{Objects: []*pb.Object{post}}}))

	stream := must(client.Deliver(ctx))
	send := func(request *pb.DeliverRequest) { must(0, stream.Send(request)) }
	fields := &pb.DeliverFields{Text: true, Attributes: true}
	send(&pb.DeliverRequest{Event: &pb.DeliverRequest_Start{Start: &pb.Start{Session: "go", Fields: fields}}})
	must(stream.Recv()) // Started
	batch := must(stream.Recv()).GetBatch()
	severity = batch.Attributes[0].Values["severity"]
	fmt.Println(batch.SessionSeq, batch.NewQueryIds[0], batch.ObjectIds[0], batch.Text[0], severity.GetInteger())
	send(&pb.DeliverRequest{Event: &pb.DeliverRequest_Credit{Credit: &pb.Credit{Ack: batch.SessionSeq}}})
	must(0, stream.CloseSend())
	for err := error(nil); err == nil; { // until the service ends the stream, after it has processed the acknowledgement
		_, err = stream.Recv()
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
