package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

func Example() {
	ctx := context.Background()
	c, err := client.Dial(ctx, []string{"127.0.0.1:6650"}, client.Config{})
	check(err)
	defer c.Close()
	p, err := c.Producer(ctx, "greetings", client.ProducerConfig{Create: &protocol.TopicConfig{}})
	check(err)
	k, err := c.Consumer(ctx, "greetings", client.ConsumerConfig{Subscription: "me"})
	check(err)
	sent, err := p.Send(ctx, client.Message{Payload: []byte("hello")})
	check(err)
	m, err := k.Receive(ctx)
	check(err)
	fmt.Printf("offset %d: %s\n", sent.Offset, m.Payload)
	check(k.Ack(m))
	check(k.Close(ctx))
}

func ExampleProducer_SendAsync() {
	ctx := context.Background()
	c, err := client.Dial(ctx, []string{"127.0.0.1:6650"}, client.Config{})
	check(err)
	defer c.Close()
	p, err := c.Producer(ctx, "numbers", client.ProducerConfig{Create: &protocol.TopicConfig{}})
	check(err)
	for i := range 1000 {
		m := client.Message{Payload: fmt.Append(nil, i)}
		check(p.SendAsync(ctx, m, nil)) // the callback, here none, gets the offset
	}
	unknown, err := p.Close(ctx) // waits for all, and says what failed
	fmt.Println(unknown, err)
}

func ExampleReader() {
	ctx := context.Background()
	c, err := client.Dial(ctx, []string{"127.0.0.1:6650"}, client.Config{})
	check(err)
	defer c.Close()
	r, err := c.Reader(ctx, "numbers", client.ReaderConfig{From: protocol.Position{Kind: protocol.Earliest}})
	check(err)
	defer r.Close()
	for range 10 {
		m, err := r.Next(ctx)
		check(err)
		fmt.Println(m.Offset, string(m.Payload))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
