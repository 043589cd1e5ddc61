package main

import (
	"encoding/binary"
	"io"
	"net"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Seconds that an answer may be remembered, as CoreDNS gives them by default for services.
const answerSeconds = 5

// serveNames answers the names of services over UDP and TCP. Any other name does not exist: nothing is asked elsewhere.
func (s *services) serveNames() error {
	at := net.JoinHostPort(s.dns, "53")
	packets, err := net.ListenPacket("udp", at)
	if err != nil {
		return err
	}
	streams, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	go func() {
		buffer := make([]byte, 4096)
		for {
			size, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answer := s.answer(buffer[:size]); answer != nil {
				_, _ = packets.WriteTo(answer, from)
			}
		}
	}()
	go func() {
		for {
			stream, err := streams.Accept()
			if err != nil {
				return
			}
			go s.answerStream(stream)
		}
	}()
	return nil
}

func (s *services) answerStream(stream net.Conn) {
	defer stream.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(stream, size[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(stream, question); err != nil {
			return
		}
		answer := s.answer(question)
		if answer == nil {
			return
		}
		binary.BigEndian.PutUint16(size[:], uint16(len(answer)))
		if _, err := stream.Write(append(size[:], answer...)); err != nil {
			return
		}
	}
}

func (s *services) answer(packet []byte) []byte {
	var asked dnsmessage.Message
	if asked.Unpack(packet) != nil || len(asked.Questions) != 1 || asked.Response {
		return nil
	}
	question := asked.Questions[0]
	s.lock.RLock()
	addresses, known := s.current.names[strings.ToLower(question.Name.String())]
	s.lock.RUnlock()
	answer := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: asked.ID, Response: true, Authoritative: true, RecursionDesired: asked.RecursionDesired},
		Questions: asked.Questions,
	}
	if !known {
		answer.RCode = dnsmessage.RCodeNameError
	}
	if question.Type == dnsmessage.TypeA {
		for _, address := range addresses {
			body := &dnsmessage.AResource{}
			copy(body.A[:], address.To4())
			header := dnsmessage.ResourceHeader{Name: question.Name, Type: dnsmessage.TypeA, Class: question.Class, TTL: answerSeconds}
			answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: header, Body: body})
		}
	}
	packed, err := answer.Pack()
	if err != nil {
		return nil
	}
	return packed
}
