//! CRC-32C (Castagnoli), eight bytes at a time by tables. Pure, and the same on every processor; the disks and lines
//! around it are slower.

/// The polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// What a byte does to the sum, by how many bytes come after it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    let mut value = 0_u32;
    while byte < 256 {
        let mut sum = value;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ (POLYNOMIAL * (sum & 1));
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
        value += 1;
    }
    let mut after = 1;
    while after < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[after - 1][byte];
            tables[after][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        after += 1;
    }
    tables
}

/// The sum of what has this sum already, followed by these bytes; 0 is the sum of nothing.
pub(super) fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = !before;
    for word in words {
        let mixed = u64::from_le_bytes(*word) ^ u64::from(sum);
        let places = mixed.to_le_bytes().into_iter().zip(TABLES.iter().rev());
        sum = places.fold(0, |sum, (byte, table)| sum ^ table[usize::from(byte)]);
    }
    for byte in rest {
        let [low, ..] = sum.to_le_bytes();
        sum = (sum >> 8) ^ TABLES[0][usize::from(low ^ byte)];
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_standard() {
        // RFC 3720, B.4, and the check value of the catalogues.
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(0, &[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(0, &ascending), 0x46dd_794e);
        assert_eq!(crc32c(0, b""), 0);
    }

    #[test]
    fn parts_have_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..=255).collect();
        let whole = crc32c(0, &bytes);
        for cut in 0..bytes.len() {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(crc32c(crc32c(0, first), second), whole, "{cut}");
        }
    }
}
