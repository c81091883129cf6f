"""Tables of ITU-T T.81: the standard's Huffman tables (K.3 to K.6), which code a file without any, such as a frame of
Motion JPEG, and the rows of the coefficients in zigzag order.

Keys of STANDARD_TABLES are class and number as in a DHT segment: 0x10 for AC, and 0 for luma, 1 for chroma. Values are
the number of codes of 1 to 16 bits, and their symbols.
"""

from typing import Final

STANDARD_TABLES: dict[int, tuple[tuple[int, ...], bytes]] = {
    0x00: (
        (0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0),
        bytes(range(12)),
    ),
    0x01: (
        (0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0),
        bytes(range(12)),
    ),
    0x10: (
        (0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125),
        bytes.fromhex(
            "01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282090a161718191a25262728"
            "292a3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a83848586878889"
            "8a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2"
            "e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9fa"
        ),
    ),
    0x11: (
        (0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119),
        bytes.fromhex(
            "000102031104052131061241510761711322328108144291a1b1c109233352f0156272d10a162434e125f11718191a26"
            "2728292a35363738393a434445464748494a535455565758595a636465666768696a737475767778797a828384858687"
            "88898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9da"
            "e2e3e4e5e6e7e8e9eaf2f3f4f5f6f7f8f9fa"
        ),
    ),
}


def _odd_rows() -> list[bool]:
    """Return for each coefficient in zigzag order whether its row in the block is odd."""
    places = [(row, column) for row in range(8) for column in range(8)]
    places.sort(key=lambda place: (sum(place), place[(sum(place) + 1) % 2]))
    return [row % 2 == 1 for row, _ in places]


ODD_ROW: Final = _odd_rows()
