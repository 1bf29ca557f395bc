package storage

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// parseBlockList reads <BlockList> with its entries in their order.
func parseBlockList(body []byte) ([]blockChoice, error) {
	list, err := decodeBlockList(xml.NewDecoder(bytes.NewReader(body))) //nolint:gosec // decoding clients' XML is the task
	var refused *Error
	if err != nil && !errors.As(err, &refused) {
		return nil, errInvalidXML.because("%v", err)
	}
	if len(list) > maxBlocks {
		return nil, errBlockListTooLong.because("%d are listed", len(list))
	}
	return list, err
}

func decodeBlockList(d *xml.Decoder) ([]blockChoice, error) {
	var list []blockChoice
	inside := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && inside {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if !inside {
			if inside = start.Name.Local == "BlockList"; !inside {
				return nil, fmt.Errorf("<%s> where <BlockList> belongs", start.Name.Local)
			}
			continue
		}
		choice, err := decodeBlockChoice(d, start)
		if err != nil {
			return nil, err
		}
		list = append(list, choice)
	}
}

func decodeBlockChoice(d *xml.Decoder, start xml.StartElement) (blockChoice, error) {
	from := blockSource(start.Name.Local)
	switch from {
	case fromCommitted, fromUncommitted, fromLatest:
	default:
		return blockChoice{}, fmt.Errorf("<%s> in a block list", from)
	}
	var text string
	if err := d.DecodeElement(&text, &start); err != nil {
		return blockChoice{}, err
	}
	id, err := decodeBlockID(strings.TrimSpace(text))
	return blockChoice{id: id, from: from}, err
}

func writeBlocks(doc *xmlDoc, blocks []block) {
	for _, b := range blocks {
		doc.open("Block")
		doc.text("Name", encodeBlockID(b.id))
		doc.number("Size", int64(len(b.data)))
		doc.close("Block")
	}
}
